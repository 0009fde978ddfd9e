"""Shapes a run folder can come in besides the whole one: what was not written down, or lost afterwards.

Rules kept here: a shape takes from a folder what a judge may have to do without, and changes nothing of what
is left; most of what was planted in the folder is there still.
"""

from pathlib import Path
from random import Random

from histories import NODES, READER, Line, RunFolder


def elsewhere(folder: RunFolder, random: Random) -> None:
    """An import, which says what it could not carry."""
    folder.run |= {"leaders": {}, "settled": False, "settle": {"why": "imported"}, "final_reads": {}}
    folder.files |= {"replicas.jsonl": None, **{f"logs/{node}.jsonl": None for node in NODES}}
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


def written(folder: RunFolder, path: Path) -> Path:
    """Written, whatever became of its logs."""
    missing = [name for name, data in folder.files.items() if data is None]
    folder.files = {name: data for name, data in folder.files.items() if data is not None}
    folder.write(path)
    for name in missing:
        (path / name).unlink(missing_ok=True)
    return path
