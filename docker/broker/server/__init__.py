"""The two processes, broker and controller: sockets, requests, fetchers, and the replicas they run.

It is the only folder that runs an event loop for Kafka's requests. It imports all the others, and is imported
only by the programs beside it (`python -m floodmark.broker`) and tests. Begin in process.py, then
broker_server.py, which joins the parts, replica_manager.py and effect_runner.py; controller_server.py is the
other process.
"""
