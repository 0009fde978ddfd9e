"""The judge and the twin agree on hundreds of random folders, healthy and damaged, judged in one call.

With transactions and without.
"""

import os
from pathlib import Path
from random import Random

import damages_clients
import damages_files
import damages_isolation
import damages_logs
import damages_losses
import damages_orders
import damages_txn
import damages_unread
import pytest
from damages import DAMAGES, FILES, NEAR_MISSES
from tangles import tangle
from twin_compare import differences, other_promises, other_sights
from txn_histories import healthy_txns

from histories import NODES, READER, Line, RunFolder, healthy

CATALOGUE = DAMAGES | NEAR_MISSES | FILES
ADDED_BY = (  # imported because they register their damages
    damages_clients, damages_files, damages_isolation, damages_logs, damages_losses, damages_orders,
    damages_txn, damages_unread)
FOLDERS = int(os.environ.get("FLOODMARK_SOAK", "130"))
SEED = os.environ.get("FLOODMARK_SEED", "1")


def healthy_one(random: Random) -> RunFolder:
    """A healthy run, with transactions in half of the cases."""
    steps, settled = random.randrange(30, 90), random.random() < 0.85
    if random.random() < 0.5:
        return healthy_txns(random, steps=steps, settled=settled, uncommitted=random.random() < 0.2)
    return healthy(random, steps=steps, settled=settled)


def folder_of(number: int, root: Path) -> tuple[str, Path]:
    """What was done to a healthy folder (each damage of the catalogue in turn, often one more, sometimes
    none), and its path."""
    random = Random(f"{SEED} {number}")
    folder = healthy_one(random)
    if random.random() < 0.3:
        folder.run["guarantees"] |= other_promises(random)
    if number % 4 == 3:
        folder.run |= other_sights(random)
    names = sorted(CATALOGUE)
    asked = [names[number % len(names)]] if number % 10 else []
    asked += random.sample(names, random.choice((0, 0, 1, 2)))
    done = []
    if random.random() < 0.15:
        tangle(folder, random)
        done.append("a tangle")
    for name in asked:
        try:
            planted = CATALOGUE[name](folder, random)
        except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError):
            continue  # an earlier damage removed what this one needs
        done.append(name if planted is not None else f"({name})")
    if random.random() < 0.25:
        shape = random.choice((elsewhere, final_reads_alone, nobody_leads))
        shape(folder, random)
        done.append(shape.__name__)
    return ", ".join(done) or "healthy", written(folder, root / f"{number:04}")


# -- incomplete folders: something was not recorded, or was lost afterwards; most of the damage is still there

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


@pytest.mark.spark
def test_judge_and_twin_agree(tmp_path: Path) -> None:
    """Findings by name, class, permitted_by and count, the names under unknown, and valid are the same."""
    found = differences([folder_of(number, tmp_path) for number in range(FOLDERS)])

    assert found == [], "\n".join(found)
