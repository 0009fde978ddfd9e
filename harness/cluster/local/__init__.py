"""The local cluster: brokers and controller as processes on loopback, without root and without Docker.

cluster.py joins the parts. supervisor.py is the parent process of them all, link_proxies.py the process
through which connections are cut; both speak JSON lines over socket pairs. Nobody but the catalog imports it.
"""
