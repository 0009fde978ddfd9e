"""The laws: what a correct cluster keeps, each written once, over the tables of one unit of work.

Start with tables.py, the contract: which tables a unit has, column by column. unit.py runs SELECTs over them
in DuckDB; every other module is one family of laws. Nothing here knows Spark, files or folders.
"""
