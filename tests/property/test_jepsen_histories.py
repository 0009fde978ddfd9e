"""Jepsen's histories of a log, made and damaged at random: in what is imported of them, judge and twin find
the same, and nothing where nothing is wrong.

They are the runs of histories.py and the damages of random_runs.py, told as Jepsen tells them. Without damage
everything is correct: sends that end in doubt, aborted transactions, consumers that seek, crash, and lose and
regain their partitions, reads without an offset.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import here
import random_runs
import twin
from folders import Line, RunFolder
from how_many import cases
from twin_compare import as_dict, spoken

from floodmark.harness.commands.import_jepsen import import_history
from histories import READER, healthy

JUDGED = cases(int(os.environ.get("FLOODMARK_SOAK", "150")), few=48)
FIRST = int(os.environ.get("FLOODMARK_SEED", "0")) * 100_000
PERMITTED = {"poll-skip", "nonmonotonic-poll",  # by subscribe
             "G0"}  # by isolation, and no finding of Jepsen's
ALL = {"duplicate", "inconsistent-offsets", "lost-write", "G1a", "precommitted-read", "int-poll-skip",
       "int-nonmonotonic-poll", "int-nonmonotonic-send", "poll-skip", "nonmonotonic-poll",
       "nonmonotonic-send", "G1c-realtime"}  # fmt: skip
BLIND = 0.03  # share of a partition's reads in which some have no offset


def history(seed: int) -> RunFolder:
    return healthy(Random(seed), steps=200, transacts=bool(seed % 2),
                   moves="seek" if seed // 2 % 3 else "subscribe")


def damaged(seed: int) -> RunFolder:
    run, random = history(seed), Random(f"damage {seed}")
    for change in [DAMAGES[seed % len(DAMAGES)], *random.sample(DAMAGES, random.choice((0, 1, 2, 3)))]:
        with suppress(*random_runs.MISFITS):
            change(run, random)
    return run


def a_transaction_reads_its_own(run: RunFolder, random: Random) -> None:
    line, send = random_runs.one(random, [(line, send) for line in run.lines if line["f"] == "txn"
                                          for send in line.get("sends", ()) if "offset" in send])
    line["reads"] = [*line["reads"], dict(send)]


DAMAGES = (
    a_transaction_reads_its_own, random_runs.a_line_is_of_another_process, random_runs.an_ack_changes,
    random_runs.an_answer_is_another, random_runs.an_op_comes, random_runs.a_value_is_never_read,
    random_runs.reads_go, random_runs.reads_come, random_runs.reads_change)


# -- as Jepsen tells them -----------------------------------------------------------------------------------

def text_of(run: RunFolder, random: Random, blind: float) -> str:
    return "\n".join(f"{{:index {index}, :time {index * 1000}, {op}}}"
                     for index, op in enumerate(ops_of(run.lines, random, blind)))


def ops_of(lines: list[Line], random: Random, blind: float) -> Iterator[str]:
    answers = dict[int, Line]()  # index of an invocation -> its completion
    asked: dict[int, int] = {}
    for line in lines:
        if line["type"] == "invoke":
            asked[line["process"]] = line["index"]
        elif line["process"] in asked:
            answers[asked.pop(line["process"])] = line
    for line in lines:
        f, invoked = line["f"], line["type"] == "invoke"
        if line["process"] < 0 or f == "list_offsets":
            continue
        more = ", :seek-to-beginning? true" if line.get("seek") or line["process"] == READER else ""
        more += f", :rebalance-log [{{:keys {edn(line['rebalanced'])}}}]" if line.get("rebalanced") else ""
        value: Any = line.get("partitions")
        if f in ("send", "poll", "txn"):
            value = [["send", send["partition"], send["value"] if invoked or (
                line["type"] != "ok" and send.get("offset") is None) else [send.get("offset"), send["value"]]]
                for send in line.get("sends") or ()]
            if f == "poll" or (answers.get(line["index"], {}) if invoked else line).get("reads"):
                value.append(["poll"] if invoked else ["poll", reads_of(line, random, blind)])
        yield f":process {line['process']}, :type :{line['type']}, :f :{f}, :value {edn(value)}{more}"


def reads_of(line: Line, random: Random, blind: float) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for read in line.get("reads") or ():
        found.setdefault(read["partition"], []).append([read["offset"], read["value"]])
    for pairs in found.values():
        if random.random() < blind:
            pairs[:] = [[random.choice((None, offset)), value] for offset, value in pairs]
    return found


def edn(form: Any) -> str:
    if isinstance(form, dict):
        return f"{{{', '.join(f'{edn(key)} {edn(value)}' for key, value in form.items())}}}"
    if isinstance(form, list):
        return f"[{' '.join(map(edn, form))}]"
    return "nil" if form is None else f":{form}" if isinstance(form, str) else str(form)


# -- the property -------------------------------------------------------------------------------------------

def test_judge_and_twin_find_the_same_and_nothing_where_nothing_is(tmp_path: Path) -> None:
    """Every anomaly that Jepsen names is among what is found in the damaged ones."""
    seeds = range(FIRST, FIRST + JUDGED)
    made = [(damaged(seed), 0.0) for seed in seeds] + [(history(seed), BLIND) for seed in seeds[:JUDGED // 3]]
    folders = []
    for number, (run, blind) in enumerate(made):
        (tmp_path / f"{number}.edn").write_text(text_of(run, Random(number), blind))
        folders.append(tmp_path / str(number))
        assert import_history(tmp_path / f"{number}.edn", out=folders[-1]) == 0
    verdicts = [spoken(as_dict(verdict)) for verdict in here.judge(folders)]

    different = [f"{folder}:\n  twin  {wanted}\n  judge {judged}"
                 for folder, judged in zip(folders, verdicts, strict=True)
                 if (wanted := spoken(twin.judge(folder))) != judged]
    assert different == [], "\n".join(different)
    assert {name for _, findings, *_ in verdicts for name, *_ in findings} >= ALL
    for folder, (_, findings, *_) in list(zip(folders, verdicts, strict=True))[JUDGED:]:
        assert {name for name, *_ in findings} <= PERMITTED, folder
        assert "bug" not in {klass for _, klass, *_ in findings}, folder
