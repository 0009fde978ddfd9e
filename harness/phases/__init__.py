"""The phases of a run: main_phase.py (load and faults), settle.py (settle and final reads), collect.py."""
