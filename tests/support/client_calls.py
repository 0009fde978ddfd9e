"""The ordinary calls of Kafka's clients, each client's answers and times as rows, and as a table in Markdown.

`python tests/support/client_calls.py` makes all calls on three brokers of `floodmark cluster up`, and writes
the table into docker/README.md. Exit 1: a call was not answered as it should be.

A client is an object with the methods and `calls` that CALLS names; `more` are calls of its own. They raise
what its library raises; `name_of` gives the name of such an error, or raises what is no refusal.
"""

import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floodmark.harness.cluster.kafka.kafka_system import found

OK = "ok"
SOON_S = 20.0  # a client that asks again after a refusal goes on for half a minute or more
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
NO_GROUPS, NO_TRANSACTIONS = "GROUP_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
NO_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"
PAGE = Path(__file__).parents[2] / "docker" / "README.md"
BEGIN, END = "<!-- clients: tests/support/client_calls.py writes these lines -->", "<!-- end of clients -->"
LATE_MS = 1 << 50
WAIT_S = 120.0
JAVA, JAVA_CLIENT = Path(__file__).with_name("ClientCalls.java"), "4.3.1"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    client: str
    version: str
    call: str
    expected: str
    answer: str
    seconds: float

    @property
    def good(self) -> bool:
        return self.answer == self.expected and self.seconds < SOON_S


def values_of(compression: str) -> list[str]:
    return [f"{compression} " + "v" * 99 + str(number) for number in range(20)]


def time_of(value: str) -> int:
    """Its timestamp, in milliseconds."""
    return 1_000_000 + len(value)


def produce_and_read(client: Any, compression: str) -> None:
    values = values_of(compression)
    first = client.produce(values, compression)
    assert client.read(first, len(values)) == values


def assign_without_an_offset(client: Any) -> None:
    """The consumer asks for its group's committed offset: there is none, and it begins at the first."""
    assert client.committed() is None
    assert client.read(None, 1) == values_of(COMPRESSIONS[0])[:1]


def offsets_by_time(client: Any) -> None:
    tenth = time_of(values_of(COMPRESSIONS[0])[10])
    assert client.offsets_at(0, tenth, LATE_MS) == [0, 10, None]


def list_offsets(client: Any) -> None:
    assert min(client.ends()) >= 0


def alter(client: Any, key: str, value: str) -> None:
    client.alter(key, value)
    assert client.configs("topic")[key] == value


def has(client: Any, kind: str, key: str, value: str) -> None:
    assert client.configs(kind)[key] == value


def no_groups(client: Any) -> None:
    assert list(client.calls["list groups"](client)) == []


CALLS: Sequence[tuple[str, str, str | Callable[[Any], object]]] = (  # a call of another name is made again
    ("list topics", OK, "list topics"),
    ("describe the cluster", OK, "describe the cluster"),
    ("create a topic", OK, "create a topic"),
    ("create it again", "TOPIC_ALREADY_EXISTS", "create a topic"),
    ("describe it", OK, "describe it"),
    ("add partitions", OK, "add partitions"),
    ("describe its configs", OK, lambda client: has(client, "topic", "min.insync.replicas", "2")),
    ("alter its configs", OK, lambda client: alter(client, "min.insync.replicas", "1")),
    ("alter a config that is none", "INVALID_CONFIG", lambda client: client.alter("no.such.config", "1")),
    ("cleanup.policy=compact", "POLICY_VIOLATION", lambda client: client.alter("cleanup.policy", "compact")),
    ("describe a broker's configs", OK, lambda client: has(client, "broker", "node.id", "1")),
    *((f"produce ({each}), assign, read", OK, lambda client, each=each: produce_and_read(client, each))
      for each in COMPRESSIONS),
    ("produce (idempotent)", OK, lambda client: client.produce(["i"], "none", idempotent=True)),
    ("assign without an offset", OK, assign_without_an_offset),
    ("offsets by time", OK, offsets_by_time),
    ("list offsets", OK, list_offsets),
    ("list groups", OK, no_groups),
    ("subscribe", NO_GROUPS, "subscribe"),
    ("commit", NO_GROUPS, "commit"),
    ("begin with transactions", NO_TRANSACTIONS, "begin with transactions"),
    ("delete records", "UNSUPPORTED_VERSION", "delete records"),
    ("describe ACLs", "UNSUPPORTED_VERSION", "describe ACLs"),
    ("delete the topic", OK, "delete the topic"),
    ("delete it again", NO_TOPIC, "delete the topic"),
    ("describe what is deleted", NO_TOPIC, "describe it"),
)  # fmt: skip


def a_topic(client: str) -> str:
    return f"calls-{client}-{next(_numbers)}"


def rows_of(kind: Any, bootstrap: str) -> list[Row]:
    """Makes each call once, in order."""
    rows = []
    with closing(kind(bootstrap, a_topic(kind.name))) as client:
        for call, expected, make in (*CALLS, *kind.more):
            began = time.monotonic()
            try:
                (client.calls[make] if isinstance(make, str) else make)(client)
                answer = OK
            except Exception as error:
                answer = client.name_of(error)
            rows.append(Row(client=kind.name, version=kind.version, call=call, answer=answer,
                            expected=kind.names.get(expected, expected), seconds=time.monotonic() - began))
    return rows


def java_rows(bootstrap: str) -> list[Row]:
    """Of the Java client, by a program of one file."""
    kafka = found(JAVA_CLIENT)
    done = subprocess.run([kafka.java, "-Dlog4j2.level=OFF", "-cp", kafka.classpath, JAVA, bootstrap,
                           a_topic("java")],
                          capture_output=True, text=True, check=True, timeout=WAIT_S)
    version, *lines = done.stdout.splitlines()
    return [Row(client="Java kafka-clients", version=version, call=call, expected=expected, answer=answer,
                seconds=float(seconds))
            for call, expected, answer, seconds in (line.split("\t") for line in lines)]


# -- tables -------------------------------------------------------------------------------------------------

def describe_wrong(rows: Iterable[Row]) -> str:
    """The rows that are not as they should be, as text."""
    return "\n".join(
        f"{row.client}: {row.call}: {row.answer} in {row.seconds:.2f} s, expected {row.expected}"
        for row in rows
        if not row.good
    )


def table(rows: Iterable[Row]) -> str:
    """The rows in Markdown."""
    lines = ["| client | version | call | answer | s |", "|---|---|---|---|---|"]
    for row in rows:
        answer = row.answer if row.answer == OK else f"`{row.answer}`"
        lines.append(f"| {row.client} | {row.version} | {row.call} | {answer} | {row.seconds:.2f} |")
    return "\n".join(lines)


def main() -> int:
    from clients_confluent import Confluent
    from clients_kafka_python import KafkaPython
    from cluster_up import cluster_up

    with tempfile.TemporaryDirectory() as folder, cluster_up(Path(folder)) as up:
        rows = [row for kind in (Confluent, KafkaPython) for row in rows_of(kind, up.bootstrap)]
        rows += java_rows(up.bootstrap)
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    tail = rest.partition(END)[2]
    PAGE.write_text(f"{head}{BEGIN}\n\n{table(rows)}\n\n{END}{tail}", encoding="utf-8")
    print(describe_wrong(rows))
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
