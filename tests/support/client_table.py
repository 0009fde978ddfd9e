"""`python tests/support/client_table.py`: docker/README.md's table of clients, made anew.

It brings three brokers up with `floodmark cluster up` and makes every client's calls. Exit 1: one was not
answered as it should be. Of clients that are not installed nothing is written.
"""

import sys
import tempfile
from pathlib import Path

import clients_aiokafka
import clients_confluent
import clients_java
import clients_kafka_python
import clients_kcat
from client_calls import into, table, told
from cluster_up import cluster_up

PAGE = Path(__file__).parents[2] / "docker" / "README.md"


def main() -> int:
    clients = [clients_confluent.rows, clients_kafka_python.rows, clients_aiokafka.rows]
    clients += [clients_kcat.rows] if clients_kcat.KCAT else []
    clients += [] if clients_java.missing() else [clients_java.rows]
    with tempfile.TemporaryDirectory() as folder, cluster_up(Path(folder)) as up:
        rows = [row for client in clients for row in client(up.bootstrap)]
    PAGE.write_text(into(PAGE.read_text(encoding="utf-8"), table(rows)), encoding="utf-8")
    print(told(rows))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
