"""The judge finds in an imported history what Jepsen's own definitions find in it.

In histories of a log without errors it finds only what a subscription permits.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import jepsen_oracle
import pytest
from how_many import cases
from jepsen_damage import DAMAGES, damaged, ops_of, text_of
from jepsen_runs import history

from floodmark.harness.commands.import_jepsen import import_history
from floodmark.harness.verdict import BUG, Verdict

HISTORIES = int(os.environ.get("FLOODMARK_SOAK", "150"))
FIRST = int(os.environ.get("FLOODMARK_SEED", "0")) * 100_000
LEGAL = cases(HISTORIES // 3, few=HISTORIES // 9)
EACH = cases(HISTORIES, few=3)  # so many histories are judged of each damage and of each finding
CYCLES = {"G1c": {"G1c"}, "G1c-realtime": {"G1c", "G1c-process", "G1c-realtime"}}
Story = tuple[str, list[jepsen_oracle.Op]]  # the damages, and the ops
OF_SUBSCRIBERS = {"poll-skip", "nonmonotonic-poll"}  # permitted by subscribe
PROMISED_BY_NOBODY = {"G0"}  # permitted by isolation, and no finding of Jepsen's
ALL = {"duplicate", "inconsistent-offsets", "lost-write", "G1a", "precommitted-read", "int-poll-skip",
       "int-nonmonotonic-poll", "int-nonmonotonic-send", "poll-skip", "nonmonotonic-poll",
       "nonmonotonic-send", "G1c-realtime"}  # fmt: skip


def found_by_the_judge(verdict: Verdict) -> tuple[set[str], set[tuple[str, int]]]:
    """The names of the findings; and with the partition, of groups whose examples are complete."""
    shown = {(one.name, int(example["partition"])) for one in verdict.findings
             if one.count == len(one.examples) for example in one.examples if "partition" in example}
    return {one.name for one in verdict.findings}, shown


def missing(wanted: Iterable[tuple[str, int]], verdict: Verdict) -> list[tuple[str, int]]:
    names, shown = found_by_the_judge(verdict)
    complete = {one.name for one in verdict.findings if one.count == len(one.examples)}
    return [(name, key) for name, key in sorted(wanted)
            if not CYCLES.get(name, {name}) & names
            or (name in complete and name not in CYCLES and (name, key) not in shown)]


def unknown(verdict: Verdict) -> set[str]:
    return {name for one in verdict.unknown for name in one.names}


def imported(root: Path, text: str, name: str) -> Path:
    (root / f"{name}.edn").write_text(text)
    assert import_history(root / f"{name}.edn", out=root / name) == 0
    return root / name


def chosen(stories: Sequence[Story], wanted: Sequence[set[tuple[str, int]]]) -> list[int]:
    """The stories that are among the first EACH with one of their damages or findings, or without a
    finding."""
    seen, numbers = Counter[str](), list[int]()
    for number, ((damages, _), found) in enumerate(zip(stories, wanted, strict=True)):
        shown = {*damages.split(", "), *({name for name, _ in found} or {"nothing is found"})}
        if any(seen[one] < EACH for one in shown):
            seen.update(shown)
            numbers.append(number)
    return numbers


@pytest.mark.spark
def test_the_judge_finds_what_jepsen_finds_and_nothing_where_nothing_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from floodmark.checkers.judge.job import SparkJudge

    stories = [damaged(FIRST + number) for number in range(HISTORIES)]
    wanted = [jepsen_oracle.findings(ops) for _, ops in stories]
    few = chosen(stories, wanted)
    stories, wanted = [stories[number] for number in few], [wanted[number] for number in few]
    legal = [history(FIRST + number, txn=bool(number % 2), subscribe=bool(number // 2 % 2))
             for number in range(LEGAL)]
    folders = [imported(tmp_path, text_of(ops), f"damaged-{number}")
               for number, (_, ops) in enumerate(stories)]
    folders += [imported(tmp_path, text, f"legal-{number}") for number, text in enumerate(legal)]

    capsys.readouterr()
    verdicts = SparkJudge().judge(folders)

    lacking = [f"{folder}: {story}: not found {left}; unknown {sorted(unknown(verdict))}"
               for folder, (story, _), found, verdict in zip(folders, stories, wanted, verdicts, strict=False)
               if (left := missing(found, verdict))]
    assert lacking == [], "\n".join(lacking)
    assert {name for found in wanted for name, _ in found} >= (ALL if HISTORIES >= 150 else set())
    for folder, verdict in list(zip(folders, verdicts, strict=True))[len(stories):]:
        assert [(one.name, one.klass) for one in verdict.findings if one.klass == BUG] == [], folder
        assert {one.name for one in verdict.findings} <= OF_SUBSCRIBERS | PROMISED_BY_NOBODY, folder


def test_every_damage_is_seen_and_a_legal_history_has_none() -> None:
    """Checks the oracle itself: every damage has an effect, and the oracle finds nothing in a legal
    history."""
    seen: dict[str, set[str]] = {damage.__name__: set() for damage in DAMAGES}
    for done, ops in map(damaged, range(300)):
        if done in seen:  # otherwise several were done
            seen[done] |= {found for found, _ in jepsen_oracle.findings(ops)}
    assert [name for name, found in seen.items() if not found] == ["rebalance_another"]  # it can only excuse
    for seed in range(60):
        subscribes = bool(seed // 2 % 2)
        found = jepsen_oracle.findings(ops_of(
            history(seed, txn=bool(seed % 2), subscribe=subscribes, blind=0.0)))
        assert {name for name, _ in found} <= (OF_SUBSCRIBERS if subscribes else set())
