"""The ordinary calls of Kafka's clients: each one's answer and its time, as rows and as a Markdown table.

`python tests/support/client_table.py` makes all of them and writes the table into docker/README.md.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

OK = "ok"
SOON_S = 20.0  # a client that asks again after a refusal goes on for half a minute or more
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
NO_GROUPS, NO_TRANSACTIONS = "GROUP_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
BEGIN, END = "<!-- clients: tests/support/client_table.py writes these lines -->", "<!-- end of clients -->"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The address to call, and the topic of this client."""

    bootstrap: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call. `run` returns OK or the error's name as the client has it, and raises everything else."""

    name: str
    expected: str
    run: Callable[[Scene], str]


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


def scene(bootstrap: str, client: str) -> Scene:
    return Scene(bootstrap=bootstrap, topic=f"calls-{client}-{next(_numbers)}")


def play(client: str, version: str, calls: Iterable[Call], at: Scene) -> list[Row]:
    """Makes each call once, in order."""
    rows = []
    for call in calls:
        began = time.monotonic()
        answer = call.run(at)
        rows.append(Row(client=client, version=version, call=call.name, expected=call.expected, answer=answer,
                        seconds=time.monotonic() - began))
    return rows


def describe_wrong(rows: Sequence[Row]) -> str:
    """The rows that are not as they should be, as text."""
    return "\n".join(
        f"{row.client}: {row.call}: {row.answer} in {row.seconds:.2f} s, expected {row.expected}"
        for row in rows
        if not row.good
    )


def table(rows: Sequence[Row]) -> list[str]:
    """The rows as a table in Markdown."""
    lines = ["| client | version | call | answer | s |", "|---|---|---|---|---|"]
    for row in rows:
        answer = row.answer if row.answer == OK else f"`{row.answer}`"
        lines.append(f"| {row.client} | {row.version} | {row.call} | {answer} | {row.seconds:.2f} |")
    return lines


def into(page: str, lines: Sequence[str]) -> str:
    """The page with these lines between its marks."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return "\n".join([head + BEGIN, "", *lines, "", END + tail])
