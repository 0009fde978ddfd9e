"""Apache Kafka itself as what runs: where its jars come from.

distribution.py is the way in: a version, or the folder of an unpacked distribution, in; what starts it, out.
jars.py keeps the jars of versions in the user's cache, fetched with Maven by docker/kafka/pom.xml.
"""
