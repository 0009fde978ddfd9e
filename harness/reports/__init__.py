"""What people and CI read of runs: paragraphs, tables, lines, JUnit, Markdown; html/ has the page of a run.

Commands and campaigns call it; it reads run folders, verdicts and the judge's texts, and starts nothing.
Begin with verdict_text.py (what `check` prints), then finding_narrative.py (a finding in plain words).
Everything that came from a folder passes safe_text.py before a terminal shows it.
"""
