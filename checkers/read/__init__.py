"""From the bytes of a run's big files to the tables of the laws: what a line must be, and what ranges hold.

field_table.py says what a line of each kind must be; ranges.py cuts files; tables.py parses a range into the
Arrow tables of checkers.laws.tables; facts.py is what the driver learns of each range.
"""
