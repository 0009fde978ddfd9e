"""Makes histories of other tools into ops of format 1: Jepsen's (jepsen.tests.kafka), in EDN or JSON lines.

`floodmark import` calls it; it imports the op, the errors and the file places, nothing else of the harness.
Begin with jepsen_ops.py, which says what each of Jepsen's ops becomes; edn.py reads the language of the file.
"""
