"""Parses the bytes of a run's big files into the tables of the laws, range by range.

field_table.py defines what a line of each kind must be; ranges.py cuts files; tables.py parses a range into
the Arrow tables of checkers.laws.tables; facts.py defines what the driver learns about each range.
"""
