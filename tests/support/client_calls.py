"""The ordinary calls of Kafka's clients, and which of them a client finds answered otherwise.

A client is an object with the methods and `calls` that CALLS names; `more` are calls of its own. They raise
what its library raises; `name_of` gives the name of such an error, or raises what is no refusal.
"""

import itertools
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from floodmark.harness.cluster.kafka.kafka_system import found

OK = "ok"
SOON_S = 20.0  # a client that asks again after a refusal goes on for half a minute or more
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
NO_GROUPS, NO_TRANSACTIONS = "GROUP_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
NO_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION"
LATE_MS = 1 << 50
WAIT_S = 120.0
JAVA, JAVA_CLIENT = Path(__file__).with_name("ClientCalls.java"), "4.3.1"
_numbers = itertools.count(1)


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


def wrong(kind: Any, bootstrap: str) -> list[str]:
    """Of each call once, in order."""
    made = []
    with closing(kind(bootstrap, a_topic(kind.name))) as client:
        for call, expected, make in (*CALLS, *kind.more):
            began, answer = time.monotonic(), OK
            try:
                (client.calls[make] if isinstance(make, str) else make)(client)
            except Exception as error:
                answer = client.name_of(error)
            made.append((call, kind.names.get(expected, expected), answer, time.monotonic() - began))
    return not_as_expected(made)


def wrong_in_java(bootstrap: str) -> list[str]:
    """Of the Java client, by a program of one file."""
    kafka = found(JAVA_CLIENT)
    done = subprocess.run(
        [kafka.java, "-Dlog4j2.level=OFF", "-cp", kafka.classpath, JAVA, bootstrap, a_topic("java")],
        capture_output=True, text=True, check=True, timeout=WAIT_S)
    made = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(made) > 25
    return not_as_expected((call, expected, answer, float(took)) for call, expected, answer, took in made)


def not_as_expected(made: Iterable[tuple[str, str, str, float]]) -> list[str]:
    return [f"{call}: {answer} in {took_s:.2f} s, expected {expected}"
            for call, expected, answer, took_s in made if answer != expected or took_s > SOON_S]
