"""The clusters that a run can drive: broker_cluster.py joins a System (what runs: reference/ and kafka/) and
a Place (where: local/, containers/ and simulated/); place.py has both. own_cluster.py is one of its own.
"""
