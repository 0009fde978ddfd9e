"""The laws: what a correct cluster keeps, each written once, over the tables of one unit of work.

Start with tables.py, the contract: the tables of a unit, column by column. unit.py runs SELECTs on them in
DuckDB; every other module is one family of laws. Nothing here uses Spark, files or folders.
"""
