"""The reference broker as a system: what a cluster must know of docker/broker's processes to run them.

system.py is the way in (harness.cluster.system: System): settings and command of each process, looks, topics,
elections, sessions, failpoints, traces. It knows no place: local/ and containers/ run what it says. Only here
stand the broker's control requests, its `floodmark.*` keys, its ids and its account of what is durable.
"""
