"""Starts, configures and uses Spark; it contains nothing about judging.

  session.py        the one context, on this machine or on a cluster; its end
  settings.py       its configuration keys, and how much memory it gets
  jvm.py            all that is used of PySpark without being public
  jvm_cds.py        a class-data archive, which halves the start of the JVM
  spark_master.py   which machines work, and whether they answer
  hadoop.py         run folders on Hadoop's file systems

Nothing here imports judge, laws or read (jvm_cds.py judges a tiny run, in a process of its own).
"""
