"""The reference broker as a system: how to run and observe the processes of docker/broker.
Begin with system.py (harness.cluster.system: System): settings and commands of the processes, observation,
topics, elections, sessions, failpoints, traces. It does not know its place: local/ and containers/ run its
commands. Only this folder has the broker's control requests, its `floodmark.*` keys, its ids and its side
file of what is durable.
"""
