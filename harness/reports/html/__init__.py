"""The page of a run: one HTML file that says what happened and shows it, offline."""
