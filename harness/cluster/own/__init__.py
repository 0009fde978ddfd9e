"""A user's own cluster (cluster.py), and faults by its owner's commands (fault_commands.py)."""
