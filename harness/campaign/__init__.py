"""Campaigns, which are many runs by one plan: their plans, states, signatures of findings, and ledgers.

Begin with plan.py (the file that a user writes) and state.py (what a campaign has done). signatures.py
groups findings by their cause; ledger.py stores what all campaigns found of each cause. Nothing here starts a
cluster or a judge: harness/commands/campaign*.py do.
"""
