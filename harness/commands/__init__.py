"""Implements the commands, a module each: they join runner, clusters, judge and reports.
Only harness/cli calls them (pytest_*.py: the pytest plugin). The text of results belongs in harness/report,
the phases of a run in harness/runner.py. Begin with run.py and check.py.
"""
