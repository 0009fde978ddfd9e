"""What survey.py sees of a run, seen in its arrays: the same numbers, for the same reasons to follow."""

import json
from typing import Any

import numpy as np

from checkers.columns import FAIL, INFO, NEMESIS_F, OK, History
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
        "nemesis": [json.loads(line) for line in history.nemesis],
        "entries": {node: dump.lines for node, dump in sieved.dumps.items() if dump.lines},
        "bad_entries": {node: dump.broken for node, dump in sieved.dumps.items() if dump.lines},
        "unmatched": sieved.paired.unmatched, "overlapping": dict(sieved.paired.overlapping),
        "block": block_of(history),
        "times": [int(history.time.min()), int(history.time.max())],
        "repeated": sieved.repeated[:REPEATED_SHOWN].tolist(),
        "partitions": sorted({key for name in ITEMS for key in sieved.groups[name].keys}),
    }  # fmt: skip


def survey_of(told: dict[str, Any]) -> Survey:
    """The same back from JSON."""
    block = Block(**{**told.pop("block"), "times": tuple(told.pop("times"))})
    told["overlapping"] = {int(process): index for process, index in told["overlapping"].items()}
    return Survey(**{**told, "blocks": [block], "partitions": set(told["partitions"])})


def block_of(history: History) -> dict[str, Any]:
    """The whole file as one block. Where no line is broken, rows are positions."""
    rows, time = len(history.time), history.time
    falls = np.flatnonzero(time[1:] < time[:-1])[:1] + 1
    ends = history.indexes(np.array([0, rows - 1])).tolist()
    return {
        "block": 0, "lines": rows + history.broken, "bad": history.broken, "first": ends[0], "last": ends[1],
        "in_step": ends[1] - ends[0] == rows - 1,
        "falls": int(history.indexes(falls)[0]) if len(falls) else None,
    }  # fmt: skip


def acked(folder: Folder, history: History) -> int:
    """Micro-sends of ok ops, those of probes aside."""
    lines = history.sends.line[history.type[history.sends.line] == OK]
    probes = np.array(folder.settle_processes, dtype=np.int64)
    return len(lines) - int(np.isin(history.process[lines], probes).sum())
