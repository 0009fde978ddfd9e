"""Apache Kafka itself as a system: its jars, processes and observation.
kafka_system.py makes the system, and is what KRaft and ZooKeeper mode share; kraft.py and zookeeper.py are
the two modes. distribution.py finds a version's jars and Java; jars.py caches jars, fetched with Maven by
pom.xml.
"""
