"""Somebody's own cluster: Kafka's wire, topics of our own, and faults by commands that its owner gives.

cluster.py is the cluster; broker_requests.py asks its brokers; fault_commands.py reads and runs the owner's
commands; clock_bounds.py says how far the brokers' clocks may lie apart.
"""
