"""The local place (place.py): processes on loopback, forks of supervisor.py, linked by link_proxies.py."""
