"""Schedules as data: entries, their moments and failpoints, and their JSON form.

Any code that plans, runs or saves faults may import it; it imports only the op, the faults and the errors.
Begin with entry.py: its docstring describes the whole form. json_form.py reads and writes it, strictly.
"""
