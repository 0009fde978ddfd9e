"""The clusters that a run can drive, all behind harness.protocols.Cluster.

broker_cluster.py joins two parts: a System (system.py: what runs) in a Place (place.py: where it runs).
Systems are reference/ (the reference broker) and kafka/; places are local/ (processes on loopback),
containers/ (a Docker engine) and simulated/ (this process, on virtual time). A system does not know its
place, nor a place its system. own/ is a cluster of its own. Only the catalog imports them, by dotted names.
Begin with system.py and place.py, then broker_cluster.py.
"""
