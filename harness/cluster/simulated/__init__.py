"""Runs the broker that ships, the harness and its clients in one process, on virtual time: one seed gives one
history, to the byte. Begin in scheduler.py (time and processes), then network.py and place.py.
"""
