"""Spark as the judge starts and asks it, and nothing of what it judges.

session.py        the one context, on this machine or on a cluster; its end
settings.py       the keys that it is told, and how much memory
jvm_cds.py        a class-data archive, which halves the start of the JVM
spark_master.py   whose machines work, and whether they answer
hadoop.py         run folders where only Hadoop's file systems reach

Nothing here imports judge, laws or read (jvm_cds.py judges a tiny run, in a process of its own).
"""
