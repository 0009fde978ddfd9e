"""What survey.py sees of a run, seen in its arrays: the same numbers, for the same reasons to follow."""

import json
from typing import Any

import numpy as np

from checkers.columns import FAIL, INFO, NEMESIS_F, OK, TXN, History
from checkers.folder import Folder
from checkers.sieve import ITEMS, Sieved
from checkers.survey import REPEATED_SHOWN, Block, Survey


def told_of(folder: Folder, sieved: Sieved) -> dict[str, Any]:
    """The survey as JSON can carry it."""
    history = sieved.history
    clients = history.f != NEMESIS_F
    kinds = np.bincount(history.type[clients], minlength=INFO + 1).tolist()
    return {
        "ok": kinds[OK], "fail": kinds[FAIL], "info": kinds[INFO], "acked": acked(folder, history),
        "txns": int(np.count_nonzero(history.f == TXN)),
        "nemesis": [json.loads(line) for line in history.nemesis],
        "entries": {node: dump.lines for node, dump in sieved.dumps.items() if dump.lines},
        "bad_entries": {node: dump.broken for node, dump in sieved.dumps.items() if dump.lines},
        "unmatched": sieved.paired.unmatched, "overlapping": dict(sieved.paired.overlapping),
        "block": block_of(history),
        "times": [int(history.time.min()), int(history.time.max())],
        "repeated": sieved.repeated[:REPEATED_SHOWN].tolist(),
        "partitions": sorted(strange(folder, sieved)),
    }  # fmt: skip


def strange(folder: Folder, sieved: Sieved) -> set[int]:
    """Partitions that the history names and run.json does not; of the others, however many, nobody asks."""
    named = (key for name in ITEMS for key in sieved.groups[name].named.tolist())
    return {key for key in named if key not in folder.partitions}


def survey_of(told: dict[str, Any]) -> Survey:
    """The same back from JSON."""
    block = Block(**{**told.pop("block"), "times": tuple(told.pop("times"))})
    told["overlapping"] = {int(process): index for process, index in told["overlapping"].items()}
    return Survey(**{**told, "blocks": [block], "partitions": set(told["partitions"])})


def block_of(history: History) -> dict[str, Any]:
    """The whole file as one block. Where no line is broken, rows are positions."""
    rows, index = len(history.time), history.indexes(np.arange(len(history.time)))
    first, last, rises = int(index.min()), int(index.max()), not history.disordered
    falls = index[1:][history.time[1:] < np.maximum.accumulate(history.time)[:-1]]
    return {
        "block": 0, "lines": rows + history.broken, "bad": history.broken, "first": first, "last": last,
        "in_step": rises and last - first == rows - 1, "rising": rises,
        "falls": int(falls.min()) if len(falls) else None,
    }  # fmt: skip


def acked(folder: Folder, history: History) -> int:
    """Micro-sends of ok ops, those of probes aside."""
    lines = history.sends.line[history.type[history.sends.line] == OK]
    probes = np.array(folder.settle_processes, dtype=np.int64)
    return len(lines) - int(np.isin(history.process[lines], probes).sum())
