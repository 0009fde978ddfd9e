"""The local place: brokers and controller as processes on loopback, without root and without Docker.
place.py is the place. supervisor.py is the parent process of all of them: it imports the broker once, and
each of its processes is a fork. link_proxies.py is the process that proxies and cuts connections. Both are
controlled by JSON lines over socket pairs. Only the catalog imports this package.
"""
