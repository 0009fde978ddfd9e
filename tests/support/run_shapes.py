"""Shapes a run folder can come in besides the whole one: what was not written down, or lost afterwards.

Rules kept here: a shape takes from a folder what a judge may have to do without, and changes nothing of what
is left; most of what was planted in the folder is there still.
"""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

from harness.dump_twin import write_twin
from harness.errors import FloodmarkError
from histories import NODES, READER, Line, RunFolder

Shape = Callable[[RunFolder, Random], None]


def whole(folder: RunFolder, random: Random) -> None:
    """As it is."""


def clients_alone(folder: RunFolder, random: Random) -> None:
    """As an import from elsewhere: nothing of the replicas."""
    folder.run |= {"leaders": {}, "settled": False, "settle": {"why": "imported"}, "final_reads": {}}
    folder.files |= {"replicas.jsonl": None, **{f"logs/{node}.jsonl": None for node in NODES}}


def elsewhere(folder: RunFolder, random: Random) -> None:
    """An import, which says what it could not carry."""
    clients_alone(folder, random)
    keys = [int(key) for key in folder.run["partitions"] if random.random() < 0.2]
    named = {} if random.random() < 0.3 else {"blind": keys, "unread": keys[:1]}
    left_out = random.choice(({}, {}, {"words of an error": 1}, {"read without an offset": 1}))
    folder.run |= {"imported": {"left_out": left_out, **named}}
    if random.random() < 0.8:
        folder.run |= {"observes": {"dumps": False, "replicas": False, "trace": []}}
    for line in folder.lines if random.random() < 0.3 else []:
        lose_some(line, random)


def final_reads_alone(folder: RunFolder, random: Random) -> None:
    """What the final reads showed is all there is; a record or two they did not."""
    gone = random.choice((NODES, (random.choice(NODES),)))
    folder.files |= {f"logs/{node}.jsonl": None for node in gone}
    if random.random() < 0.3:
        folder.files["replicas.jsonl"] = None
    if random.random() < 0.3:
        folder.run |= {"observes": {"dumps": False, "trace": []}}
    for line in folder.lines if random.random() < 0.5 else []:
        if line.get("process") == READER:
            lose_some(line, random)


def lose_some(line: Line, random: Random) -> None:
    """Not all of what the poll returned."""
    if isinstance(line.get("reads"), list):
        line["reads"] = [read for read in line["reads"] if random.random() < 0.97]


def nobody_leads(folder: RunFolder, random: Random) -> None:
    """The logs are there, but nobody knows whose counts."""
    folder.run["leaders"] = {key: {"leader": None} for key in folder.run["partitions"]}


def without_rows(folder: RunFolder, random: Random) -> None:
    folder.files["replicas.jsonl"] = None


def without_a_dump(folder: RunFolder, random: Random) -> None:
    folder.files[f"logs/{random.choice(NODES)}.jsonl"] = None


def a_spoilt_dump(folder: RunFolder, random: Random) -> None:
    """Lines in the middle and at the end of a dump are none."""
    node = random.choice(NODES)
    lines = [json.dumps(entry) for entry in folder.dumps[node]]
    for _ in range(random.randrange(1, 3)):
        if lines:
            at = random.randrange(len(lines))
            lines[at] = random.choice(('{"node":"n1"}', "nonsense", '{"a":1} {"b":2}'))
    folder.files[f"logs/{node}.jsonl"] = "\n".join(lines).encode()


def a_stray_copy(folder: RunFolder, random: Random) -> None:
    """Some node is none of a partition's replicas, perhaps the one that leads it."""
    random.choice(list(folder.run["partitions"].values()))["replicas"].remove(random.choice(NODES))


def killed(folder: RunFolder, random: Random) -> None:
    """The run's end was not written down, and its last line is torn."""
    for name in ("settled", "settle", "history_lines", "ended"):
        folder.run.pop(name, None)
    if "history.jsonl" not in folder.files:
        text = "".join(json.dumps(line) + "\n" for line in folder.lines)
        folder.files["history.jsonl"] = (text + '{"index": 1, "ti').encode()


def spoilt_lines(folder: RunFolder, random: Random) -> None:
    """A few lines of the history are none."""
    if "history.jsonl" in folder.files:
        return
    lines = [json.dumps(line) for line in folder.lines]
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(lines))
        lines[at] = random.choice((lines[at][: len(lines[at]) // 2], '{"index":7}', "[]", lines[at] * 2, "}"))
    folder.files["history.jsonl"] = ("\n".join(lines) + "\n").encode()


SHAPES: tuple[Shape, ...] = (
    whole, clients_alone, elsewhere, final_reads_alone, nobody_leads, without_rows, without_a_dump,
    a_spoilt_dump, a_stray_copy, killed, spoilt_lines,
)  # fmt: skip


def as_parquet(folder: Path) -> Path:
    """Its dumps kept as Parquet alone, where they can be."""
    for lines in sorted((folder / "logs").glob("*.jsonl")):
        try:
            write_twin(lines)
        except FloodmarkError:
            continue
        lines.unlink()
    return folder


def written(folder: RunFolder, path: Path) -> Path:
    """Written, whatever became of its logs."""
    missing = [name for name, data in folder.files.items() if data is None]
    folder.files = {name: data for name, data in folder.files.items() if data is not None}
    folder.write(path)
    for name in missing:
        (path / name).unlink(missing_ok=True)
    return path

