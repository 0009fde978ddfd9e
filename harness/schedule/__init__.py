"""What is to strike a run, as data: entries, their moments and failpoints, and their JSON form.

Whoever plans, plays or saves faults may import it; it imports only the op, the faults and the errors.
Begin with entry.py: its docstring is the whole form. json_form.py reads and writes it, strictly.
"""
