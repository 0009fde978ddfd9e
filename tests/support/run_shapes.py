"""Shapes of incomplete run folders: something was not recorded, or was lost afterwards.

Rules kept here: a shape removes from a folder what a judge may have to do without, and changes nothing of the
rest; most of the planted damage is still there.
"""

from pathlib import Path
from random import Random

from histories import NODES, READER, Line, RunFolder


def elsewhere(folder: RunFolder, random: Random) -> None:
    """An imported history, which says what it could not carry."""
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
    """Only the final reads are left, and they lack a record or two."""
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
    """Removes some records from the poll."""
    if isinstance(line.get("reads"), list):
        line["reads"] = [read for read in line["reads"] if random.random() < 0.97]


def nobody_leads(folder: RunFolder, random: Random) -> None:
    """The logs are there, but it is unknown which one counts."""
    folder.run["leaders"] = {key: {"leader": None} for key in folder.run["partitions"]}


def written(folder: RunFolder, path: Path) -> Path:
    """Writes the folder, whatever happened to its logs."""
    missing = [name for name, data in folder.files.items() if data is None]
    folder.files = {name: data for name, data in folder.files.items() if data is not None}
    folder.write(path)
    for name in missing:
        (path / name).unlink(missing_ok=True)
    return path
