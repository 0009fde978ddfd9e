"""Nights of runs: what to run, what was run, what was found, and what is known of it.

Begin with plan.py (the file that a user writes) and journal.py (what a campaign's folder says of its runs).
signatures.py says which findings have one cause; ledger.py keeps what all campaigns know of each cause.
Nothing here starts a cluster or a judge: harness/commands/campaign*.py do.
"""
