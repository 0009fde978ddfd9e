"""The clusters a run can drive, all behind harness.protocols.Cluster: what runs x where it lives.

At the top stands what every system and every place shares. broker_cluster.py is the cluster: a System
(system.py: what runs) in a House (hosts.py: where). reference/ is the reference broker as a system; local/
runs processes on loopback, containers/ on a Docker engine. A system knows no place and a place no system.
The catalog alone imports them, by dotted names. Begin with system.py and hosts.py, then broker_cluster.py.
"""
