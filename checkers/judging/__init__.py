"""The judge that asks every law of every record (it is to become checkers/judge/).

run_tables.py makes the tables that the driver knows (gates, permissions); told.py makes verdicts of findings.
"""
