"""The phases of a run: main_phase.py (load and faults), end_phases.py (settle, final reads, collect)."""
