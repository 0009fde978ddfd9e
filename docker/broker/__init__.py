"""The reference broker: Kafka's replication as a pure machine, and an asyncio shell round it."""

__version__ = "0.1.0"
