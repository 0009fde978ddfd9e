"""The clusters that a run can drive, all behind harness.protocols.Cluster.

broker_cluster.py joins two parts: a System (system.py: what runs) in a House (hosts.py: where it runs).
Systems are reference/ (the reference broker) and kafka/; places are local/ (processes on loopback) and
containers/ (a Docker engine). A system does not know its place, nor a place its system. memory/ and own/ are
clusters of their own. Only the catalog imports them, by dotted names. Begin with system.py and hosts.py, then
broker_cluster.py.
"""
