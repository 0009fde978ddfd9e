"""The local cluster: brokers and controller as processes on loopback, without root and without Docker.
cluster.py joins the parts. supervisor.py is the parent process of all of them, link_proxies.py is the process
that proxies and cuts connections; both are controlled by JSON lines over socket pairs. Only the catalog
imports it.
"""
