"""Runs the broker that ships, the harness and its clients in one process, on virtual time: one seed gives one
history, to the byte.

Begin in scheduler.py (time and processes), then network.py and place.py (the place). broker_runtime.py is
what a broker's process takes from its surroundings here; guard.py refuses whoever reads the real ones.
"""
