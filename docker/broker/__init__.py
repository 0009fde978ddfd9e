"""The reference broker: Kafka's replication as pure machines, and the asyncio processes that run them.

Begin in server/broker_server.py (one broker) or protocol/replica.py (the rules). Imports run one way: server
uses storage, wire and testing, all of these use protocol, and protocol uses none of them. process_log.py is
below all folders but protocol.
"""

__version__ = "0.1.0"
