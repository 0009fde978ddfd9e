"""Apache Kafka as a system: kafka_system.py makes it, and is what KRaft mode (kraft.py) and ZooKeeper mode
(zookeeper.py) share. distribution.py finds a version's jars and Java.
"""
