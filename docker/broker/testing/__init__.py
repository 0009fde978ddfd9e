"""Test support that Kafka does not have: failpoints, the trace, known-bad rules, the control socket.

Server imports it, and it imports protocol; storage and wire do not import it. Begin in
failpoint_requests.py (which points there are), trace_events.py (what a trace line means) or bugs.py. Names of
failpoints, trace events and bugs are public: scenario files and saved runs name them.
"""
