"""The reference broker as a system (system.py): how to run and observe the processes of docker/broker. Only
this folder has its control requests, its `floodmark.*` keys, its ids and its side file of what is durable.
"""
