"""`python tests/support/client_table.py` writes the table of clients in docker/README.md again.

It starts three brokers with `floodmark cluster up` and makes every client's calls. Exit 1: a call was not
answered as it should be. Clients that are not installed get no rows.
"""

import sys
import tempfile
from pathlib import Path

import clients_aiokafka
import clients_confluent
import clients_java
import clients_kafka_python
import clients_kcat
from client_calls import describe_wrong, into, table
from cluster_up import cluster_up

PAGE = Path(__file__).parents[2] / "docker" / "README.md"


def main() -> int:
    clients = [clients_confluent.rows, clients_kafka_python.rows, clients_aiokafka.rows]
    clients += [clients_kcat.rows] if clients_kcat.KCAT else []
    clients += [] if clients_java.missing() else [clients_java.rows]
    with tempfile.TemporaryDirectory() as folder, cluster_up(Path(folder)) as up:
        rows = [row for client in clients for row in client(up.bootstrap)]
    PAGE.write_text(into(PAGE.read_text(encoding="utf-8"), table(rows)), encoding="utf-8")
    print(describe_wrong(rows))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
