"""Schedules as data: entries, their moments and failpoints, and their JSON form.

All code that plans, runs or saves faults can import it; it imports only ops, faults and errors itself. Begin
with moments.py; nemesis/README.md describes the form, json_form.py reads it strictly, and writes it.
"""
