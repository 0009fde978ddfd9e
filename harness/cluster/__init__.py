"""The clusters a run can drive, all behind harness.protocols.Cluster.

At the top stands what every place shares: broker_cluster.py (the cluster of docker/broker's processes), its
files, views and control requests. local/ runs the processes on loopback, containers/ on a Docker engine.
The catalog alone imports a cluster, by its dotted name. Begin with broker_cluster.py, then hosts.py.
"""
