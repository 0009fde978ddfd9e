"""The clusters that a run can drive: broker_cluster.py joins a System (what runs: reference/ and kafka/) and
a Place (where: local/, containers/ and simulated/), and has both protocols. own_cluster.py is a user's own.
"""
