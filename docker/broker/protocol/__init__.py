"""The replication protocol as pure machines: replica, leader, follower, ISR, controller, and their rules.

Every machine is step(event) -> effects: no I/O, no clock, no randomness, no asyncio. Everybody may import
this folder, and it imports nothing else of the broker. Begin in messages.py (events and effects), then
replica.py and controller.py; rules.py says what each generation of Kafka did.
"""
