"""Converts histories of other tools to format 1: Jepsen's (jepsen.tests.kafka), in EDN or JSON lines.
`floodmark import` calls it; of the harness it imports only ops, errors and run folders. Begin with
jepsen_run.py, which writes the folder's files; jepsen_ops.py converts Jepsen's ops, edn.py parses EDN.
"""
