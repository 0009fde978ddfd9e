"""Makes the HTML page of a run, or of a campaign: one file that opens offline. Begin with page.py."""
