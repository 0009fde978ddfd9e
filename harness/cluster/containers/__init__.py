"""The cluster in containers: brokers in an image, each with a network namespace and an address of its own.

docker and testcontainers are imported here and nowhere else. The catalog enters, and the doctor, which looks
at the engine. Begin with cluster.py, then engine_resources.py (every call to the engine)
and pods.py (the processes).
"""
