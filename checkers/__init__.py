"""Judges: they read run folders, in PySpark, and never touch a cluster."""
