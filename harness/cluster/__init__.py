"""The clusters that a run can drive: broker_cluster.py joins a System (system.py: what runs; reference/ and
kafka/) and a Place (place.py: where; local/, containers/, simulated/). own/ is a cluster of its own.
"""
