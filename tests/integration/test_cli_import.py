"""`floodmark import jepsen` and the judge: what only an import has, and the findings in it.

Seeks, rebalances, subscriptions, reads without offsets, at random: tests/property/test_jepsen_histories.py.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import Answer, floodmark, verdict

from floodmark.checkers.laws import finding_names as names

# A history alone cannot show these, whatever is in it: these checks are not made.
OF_LOGS = {name for name, law in names.LAWS.items() if law.needs and not law.imports_show}


def ops(*steps: str) -> str:
    """A history from steps `PROCESS TYPE F VALUE`, e.g. `0 ok send [[:send 0 [5 1]]]`."""
    lines = []
    for index, step in enumerate(steps):
        process, kind, f, value = (*step.split(" ", 3), "nil")[:4]
        who = ":nemesis" if process == "nemesis" else process
        lines.append(f"{{:index {index}, :time {index * 1000000}, :process {who}, :type :{kind}, :f :{f}, "
                     f":value {value}}}")
    return "\n".join(lines) + "\n"


def sent(process: int, value: int, offset: int, key: int = 0) -> tuple[str, str]:
    return (f"{process} invoke send [[:send {key} {value}]]",
            f"{process} ok send [[:send {key} [{offset} {value}]]]")


def polled(process: int, reads: str) -> tuple[str, str]:
    return f"{process} invoke poll [[:poll]]", f"{process} ok poll [[:poll {reads}]]"


def held(process: int, keys: str = "[0 1]", f: str = "assign") -> tuple[str, str]:
    return f"{process} invoke {f} {keys}", f"{process} ok {f} {keys}"


HISTORIES: dict[str, tuple[str, tuple[str, ...], dict[str, str | None]]] = {
    # name: text, options, findings (and what permits each)
    "clean": (ops(
        *sent(0, 1, 0), *sent(0, 1, 0, key=1), *sent(0, 2, 1), *held(1), *polled(1, "{0 [[0 1]], 1 [[0 1]]}"),
        *polled(1, "{0 [[1 2]]}"), "1 invoke crash", "1 info crash", *held(2),
        "nemesis info kill :all", 'nemesis info kill {"n1" :killed}',
        *polled(2, "{0 [[0 1] [1 2]]}"), "0 invoke send [[:send 0 3]]", "0 info send [[:send 0 3]]"), (), {}),
    "no-record": (ops("0 invoke assign [0]", "0 ok assign [0]"), (), {}),
    "no-line": ("", (), {}),
    "lost": (ops(
        *sent(0, 1, 0), *sent(0, 2, 1), *sent(0, 3, 2), *held(1), *polled(1, "{0 [[0 1] [2 3]]}")), (),
        {"int-poll-skip": None, "lost-write": None}),
    "below-the-first-read": (ops(
        *sent(0, 1, 0), *sent(0, 2, 1), *sent(0, 3, 2), *held(1), *polled(1, "{0 [[1 2] [2 3]]}")), (),
        {"lost-write": None}),
    "overwritten": (ops(
        *sent(0, 1, 0), *sent(0, 2, 1), *sent(1, 7, 1), *held(2), *polled(2, "{0 [[0 1] [1 7]]}")), (),
        {"inconsistent-offsets": None}),
    "overwritten-under-acks-1": (ops(
        *sent(0, 1, 0), *sent(0, 2, 1), "1 invoke send [[:send 0 7]]", "1 info send [[:send 0 7]]", *held(2),
        *polled(2, "{0 [[0 1] [1 7]]}")), ("-c", "acks=1"), {"inconsistent-offsets": "acks"}),
    "overwritten-after-a-power-cut": (ops(
        *sent(0, 1, 0), *sent(0, 2, 1), 'nemesis info lose-unfsynced-writes ["n1"]',
        'nemesis info lose-unfsynced-writes {"n1" :done}', "1 invoke send [[:send 0 7]]",
        "1 info send [[:send 0 7]]", *held(2), *polled(2, "{0 [[0 1] [1 7]]}")), (),
        {"inconsistent-offsets": "fault budget"}),
    "twice-for-a-retry": (ops(*sent(0, 1, 0), *held(1), *polled(1, "{0 [[0 1] [1 1]]}")), ("-c", "retries=9"),
                          {"duplicate": "retries"}),
    "aborted-and-read-uncommitted": (ops(
        "0 invoke txn [[:send 0 1] [:poll]]", "0 fail txn [[:send 0 [0 1]] [:poll]]", *held(1),
        *polled(1, "{0 [[0 1]]}"), *sent(0, 2, 2)), ("-c", "isolation.level=read_uncommitted"),
        {"G1a": "isolation"}),
    "torn": (ops(
        "0 invoke txn [[:send 0 1] [:send 1 1]]", "0 info txn [[:send 0 [0 1]] [:send 1 [1 1]]]",
        *sent(1, 7, 0, key=1), *sent(1, 8, 2, key=1), *held(1), *polled(1, "{0 [[0 1]], 1 [[0 7]]}"),
        *polled(1, "{1 [[2 8]]}")), (), {"torn-transaction": None}),
    "torn-after-a-power-cut": (ops(
        "0 invoke txn [[:send 0 1] [:send 1 1]]", "0 info txn [[:send 0 [0 1]] [:send 1 [1 1]]]",
        'nemesis info lose-unfsynced-writes ["n1"]', 'nemesis info lose-unfsynced-writes {"n1" :done}',
        *sent(1, 7, 0, key=1), *sent(1, 8, 2, key=1), *held(1), *polled(1, "{0 [[0 1]], 1 [[0 7] [2 8]]}")),
        (), {"torn-transaction": "internal topics"}),
    "never-sent": (ops(*sent(0, 1, 0), *held(1), *polled(1, '{0 [[0 1] [1 "?"]]}')), (), {"phantom": None}),
    "never-sent-perhaps": (ops(  # an op that is not known may have sent it
        *sent(0, 1, 0), "0 invoke load 9", "0 ok load 9", *held(1), *polled(1, "{0 [[0 1] [1 9]]}")), (), {}),
    "sent-twice": (ops(*sent(0, 1, 0), *sent(0, 1, 1), *held(1), *polled(1, "{0 [[0 1] [1 1]]}")), (), {}),
}  # fmt: skip


UNSURE = {  # histories with something unknown, also losses
    "aborted-and-read-uncommitted", "never-sent-perhaps", "sent-twice", "no-record", "no-line"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    folder: Path
    answer: Answer

    def findings(self, name: str) -> dict[str, str | None]:
        return {found["name"]: found["permitted_by"] for found in verdict(self.folder / name)["findings"]}

    def not_made(self, name: str) -> set[str]:
        return {check for entry in verdict(self.folder / name)["not_made"] for check in entry["names"]}

    def unknown(self, name: str) -> set[str]:
        return {check for entry in verdict(self.folder / name)["unknown"] for check in entry["names"]}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """All histories, imported one by one and judged in one call."""
    texts, folder = tmp_path_factory.mktemp("edn"), tmp_path_factory.mktemp("runs")
    for name, (text, options, _) in HISTORIES.items():
        (texts / f"{name}.edn").write_text(text)
        answer = floodmark("import", "jepsen", texts / f"{name}.edn", "--out", folder / name, *options)
        assert (answer.code, answer.last) == (0, str(folder / name)), answer
    return Judged(folder=folder, answer=floodmark("check", *(folder / name for name in HISTORIES)))


@pytest.mark.spark
@pytest.mark.parametrize("name", HISTORIES)
def test_the_judge_finds_what_was_planted_and_nothing_else(judged: Judged, name: str) -> None:
    planted = HISTORIES[name][2]
    assert judged.findings(name) == planted
    assert judged.not_made(name) == OF_LOGS
    assert not judged.unknown(name) & OF_LOGS
    assert ("lost-write" in judged.unknown(name)) == (name in UNSURE)
    unsure = name in UNSURE or {"fault budget", "internal topics"} & {*planted.values()}
    valid = False if None in planted.values() else "unknown" if unsure else True
    assert verdict(judged.folder / name)["valid"] == valid
    assert verdict(judged.folder / name)["counts"]["records"] == {}


@pytest.mark.spark
def test_what_is_known_is_known(judged: Judged) -> None:
    """In a clean history only the checks of the logs are unknown; with missing ops many are."""
    of_clients = {"phantom", "G1a", "duplicate", "poll-skip", "nonmonotonic-poll", "realtime-order"}
    assert not judged.unknown("clean") & of_clients
    assert judged.unknown("never-sent-perhaps") >= {"phantom", "poll-skip"}
    assert judged.unknown("sent-twice") >= {"duplicate", "G1a"}
    assert judged.answer.code == 1


@pytest.mark.spark
def test_a_healthy_history_is_valid_and_a_lossy_one_is_not(judged: Judged) -> None:
    """By the gate itself, without --allow-unknown."""
    healthy = floodmark("check", judged.folder / "clean")
    assert healthy.code == 0, healthy.out
    assert "clean: valid" in healthy.out
    assert len([line for line in healthy.out.splitlines() if line.startswith("  not made   ")]) == 1
    lossy = floodmark("check", judged.folder / "clean", judged.folder / "below-the-first-read")
    assert (lossy.code, "1 invalid, 1 valid" in lossy.out) == (1, True), lossy.out


@pytest.mark.spark
def test_an_imported_run_can_be_shown(judged: Judged) -> None:
    """A glance and a finding; there are no logs to compare, and the run cannot be reproduced."""
    glance = floodmark("show", judged.folder / "overwritten-after-a-power-cut")
    assert glance.code == 0
    assert "lose-unfsynced-writes" in glance.out
    shown = floodmark("show", judged.folder / "overwritten", "--finding", "inconsistent-offsets")
    assert shown.code == 0
    assert "floodmark reproduce" not in glance.out + shown.out + judged.answer.out
    assert floodmark("reproduce", judged.folder / "lost").code == 4


# -- without the judge --------------------------------------------------------------------------------------


def test_what_was_left_out_is_said(tmp_path: Path) -> None:
    text = HISTORIES["clean"][0].replace(":f :poll,", ":poll-ms 100, :f :poll,")
    (tmp_path / "history.edn").write_text(text)
    answer = floodmark("import", "jepsen", tmp_path / "history.edn", "--out", tmp_path / "run")
    assert "not carried: 6 x field :poll-ms" in answer.err
    assert "assumed: acks=all" in answer.err
    imported = json.loads((tmp_path / "run" / "run.json").read_text())["imported"]
    assert imported["left_out"] == {"field :poll-ms": 6}
