"""Formats runs, verdicts and nights for people and CI: paragraphs, tables, pages, JUnit, Markdown.

Commands and campaigns call it; it reads run folders, verdicts and the judge's texts, and starts nothing.
Begin with model.py (what happened) and verdict_text.py (what `check` prints), then narrative.py (a finding in
plain words), night.py (a campaign), and templates/ (pages and files, printed by render.py).
Text from a folder goes through safe_text.py before it is printed.
"""
