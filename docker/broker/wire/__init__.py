"""Bytes: Kafka's request and response frames, record batches, and the leader-and-isr message of our own.

It imports protocol for the values it reads and writes; storage and server import it. kio does the encoding
(codec.py, where to begin); fast_codec.py encodes the most frequent messages by hand; frame_validation.py
checks a frame before kio's native parser sees it.
"""
