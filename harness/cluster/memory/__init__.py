"""The cluster in memory: the reference broker's pure state machines in one process, without sockets or files.
It runs a scenario in seconds (`--cluster memory`). It uses floodmark.broker.protocol and the pure part of
floodmark.broker.testing, not the broker's storage, wire and server. Outside docker/, only this package
imports the broker. Begin with cluster.py (the Cluster protocol), broker.py (one node), network.py (messages);
only clock.py reads the time.
"""
