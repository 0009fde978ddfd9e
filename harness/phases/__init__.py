"""The phases of a run, one module each: main_phase.py (load and faults), settle.py (settle and final reads),
collect.py (freeze, read every log).

The runner calls them in this order. They know protocols and recorders, no cluster,
no workload and no nemesis. Begin with main_phase.py.
"""
