"""The cluster in memory: the reference broker's pure machines in one process, without sockets or files.

Whoever wants a scenario in seconds plays it here (`--cluster memory`). It drives floodmark.broker.protocol
and what is pure of floodmark.broker.testing, and nothing else of the broker: its storage, wire and server
are not in it. Of the tester's side this package alone imports the broker. Begin in cluster.py (the seam),
broker.py (one node), network.py (what passes between them); clock.py is the one place that reads time.
"""
