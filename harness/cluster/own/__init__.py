"""A user's own cluster: it is used by Kafka's wire, with topics of our own, and faults by its owner's
commands. cluster.py is the cluster; fault_commands.py reads and runs the owner's commands.
"""
