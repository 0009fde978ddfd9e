"""Formats runs and verdicts for people and CI: paragraphs, tables, JUnit, Markdown; html/ makes a run's page.

Commands and campaigns call it; it reads run folders, verdicts and the judge's texts, and starts nothing.
Begin with verdict_text.py (what `check` prints), then finding_narrative.py (a finding in plain words).
Text from a folder goes through safe_text.py before it is printed.
"""
