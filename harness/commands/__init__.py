"""One module per command: what joins runner, clusters, judge and reports.

harness/cli alone calls them (pytest_*.py: the pytest plugin). How a result is worded belongs in
harness/reports, how a run goes in harness/runner.py. Begin with run.py and check.py.
"""
