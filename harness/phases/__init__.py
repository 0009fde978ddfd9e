"""The phases of a run, a module each: main_phase.py (load and faults), settle.py (settle and final reads),
collect.py (freeze the cluster, read every log).

The runner calls them in this order. They use protocols and recorders only, never a concrete cluster, workload
or nemesis. Begin with main_phase.py.
"""
