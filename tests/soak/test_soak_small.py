"""A small soak: every kind of input by name with its expected findings, and random histories and mutations.

The inputs are judged in one call; a few hundred histories and mutations, with the laws of soak_laws.py, in
another.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from folders import Line, Tale
from judging import Tales
from soak_batches import Soak
from soak_wide import wide

from floodmark.checkers.judge.job import SparkJudge
from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

pytestmark = pytest.mark.spark
TALES = Tales()
verdicts = TALES.fixture()
SEED = os.environ.get("FLOODMARK_SEED", "1")
HISTORIES = int(os.environ.get("FLOODMARK_SOAK_HISTORIES", "20"))
MUTATED = int(os.environ.get("FLOODMARK_SOAK_MUTATED", "80"))
PARTITIONS = int(os.environ.get("FLOODMARK_SOAK_PARTITIONS", "25000"))
FAR = 2**62
BREACHED = names.unknown_if(names.If.BREACHED)
Spoil = Callable[[Path], object]
LOGS = names.unknown_if(names.If.LOG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoilt:
    """A tale whose folder is damaged after it is written."""

    tale: Tale
    spoil: Spoil

    def write(self, path: Path) -> Path:
        self.tale.write(path)
        self.spoil(path)
        return path


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def line(number: int, change: Callable[[bytes], bytes], name: str = "history.jsonl") -> Spoil:
    """Changes one line of a file."""

    def spoil(path: Path) -> None:
        lines = lines_of(path / name)
        lines[number] = change(lines[number])
        (path / name).write_bytes(b"".join(lines))

    return spoil


def fields(number: int, **values: object) -> Callable[[list[Line]], None]:
    """Puts these fields into a line of the history."""

    def edit(lines: list[Line]) -> None:
        lines[number] |= values

    return edit


# -- reads and completions ----------------------------------------------------------------------------------


@TALES.tale("phantom bug 2", "saw-then-lost bug 1")
def phantom_values(tale: Tale) -> None:
    """One was read, one is in every log, and neither was sent."""
    tale.acked(1, 2).poll(5, (7, 70)).logged(71).final = False
    tale.run["final_reads"] = {"processes": [6], "partitions": [0]}
    tale.assign(6, 0).poll(6, (0, 1), (1, 2))


@TALES.tale()
def polls_of_nothing(tale: Tale) -> None:
    tale.acked(1).poll(5).poll(5, kind="fail").poll(6, kind="info").poll(5, (0, 1)).poll(5)


@TALES.tale()
def invocations_without_completion(tale: Tale) -> None:
    tale.acked(1).line(7, "invoke", "send", sends=[{"partition": 0, "value": 8}])
    tale.line(8, "invoke", "poll").line(9, "invoke", "assign", partitions=[0])
    tale.line(10, "invoke", "list_offsets")


@TALES.tale(unknown=BREACHED)
def completions_without_invocation(tale: Tale) -> None:
    tale.acked(1).line(7, "ok", "send", sends=[{"partition": 0, "value": 8, "offset": 1}]).logged(8)
    tale.line(8, "ok", "poll", reads=[]).line(9, "fail", "assign", partitions=[0])


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def a_completion_of_nothing_hides_no_loss(tale: Tale) -> None:
    tale.acked(1).line(8, "ok", "poll", reads=[]).send(3, 5, at=[4])


# -- offsets ------------------------------------------------------------------------------------------------


def far_away(tale: Tale) -> Tale:
    """A log that begins at 2^62."""
    for offset, value in enumerate((1, 2, 3), FAR):
        tale.send(1, value, at=[offset])
        for node in tale.logs:
            tale.logs[node].append({"partition": 0, "offset": offset, "epoch": 0, "value": value, "crc": 5})
    return tale.poll(5, (FAR, 1), (FAR + 1, 2)).poll(5, (FAR + 2, 3)).ends(6, FAR + 3)


@TALES.tale()
def offsets_of_2_to_the_62(tale: Tale) -> Tale:
    return far_away(tale)


@TALES.tale("end-offset-regressed bug 1", "lost-write bug 1", "nonmonotonic-poll bug 1")
def damage_at_2_to_the_62(tale: Tale) -> Tale:
    return far_away(tale).send(1, 4, at=[FAR + 3]).poll(5, (FAR, 1)).ends(6, FAR + 2)


@TALES.tale("malformed-log bug 3")
def sparse_offsets(tale: Tale) -> None:
    """Acks at 0 and 2^62, and logs with nothing in between: a gap, not an array of 2^62 places."""
    tale.acked(1).send(1, 2, at=[FAR])
    for node in tale.logs:
        tale.logs[node].append({"partition": 0, "offset": FAR, "epoch": 0, "value": 2, "crc": 5})


@TALES.tale("lost-write bug 1")
def a_sparse_loss(tale: Tale) -> None:
    tale.acked(1).send(1, 2, at=[FAR])


@TALES.tale(unknown=names.unknown_if(names.If.COMPACT))
def gaps_of_compaction(tale: Tale) -> None:
    tale.acked(1, 2, 3, 4)
    tale.run["partitions"]["0"]["cleanup"] = "compact"
    tale.drop("n1", 1).drop("n1", 2).drop("n2", 1).drop("n3", 2)


@TALES.tale("malformed-log bug 1", "under-replicated bug 1")
def the_same_gap_without_compaction(tale: Tale) -> None:
    tale.acked(1, 2, 3, 4).drop("n2", 1)


# -- lines that break their table ---------------------------------------------------------------------------


@TALES.tale(unknown=BREACHED)
def an_index_twice(tale: Tale) -> None:
    tale.acked(1, 2, 3).edit = fields(5, index=4)


@TALES.tale(unknown=BREACHED)
def the_clock_goes_back(tale: Tale) -> None:
    tale.acked(1, 2, 3).edit = fields(5, time=1)


@TALES.tale(unknown=BREACHED)
def a_value_of_unicode(tale: Tale) -> None:
    def edit(lines: list[Line]) -> None:
        lines[2]["sends"][0]["value"] = "Grüße \N{SNOWMAN}"

    tale.acked(1, 2, 3).edit = edit


@TALES.tale(unknown=BREACHED)
def a_value_of_bytes(tale: Tale) -> Spoilt:
    spoil = line(3, lambda before: before.replace(b'"value": 2', b'"value": \xff\0\1'))
    return Spoilt(tale=tale.acked(1, 2, 3), spoil=spoil)


@TALES.tale()
def names_and_words_of_unicode(tale: Tale) -> None:
    tale.acked(1, 2).send(4, 9, kind="info").lines[-1]["error"] = "Zeitüberschreitung \N{SNOWMAN} \U0001f600"
    tale.fault("kill", "n1", why="\0 { \u2028 } \\ \"")
    tale.run["partitions"]["0"]["topic"] = "\N{SNOWMAN}"


def in_the_place_of(number: int, text: bytes) -> Spoil:
    return line(number, lambda before: text + b"\n")


REST = b',"time":3000,"process":1,"type":"ok","f":"poll","reads":[]}'
for title, text in {
    "a_line_of_nul": bytes(40),
    "a_line_of_binary": b"\x89PNG\r\x1a\xff\xfe\xc3\x28",
    "a_line_too_deep": b'{"index":3,"a":' + b"[" * 100_000,
    "a_huge_line": b"x" * (1 << 21),
    "a_line_of_another_kind": b'[{"index":3}]',
    "a_line_of_null": b"null",
    "an_infinite_index": b'{"index":1e400' + REST,
    "an_index_of_2_to_the_63": b'{"index":9223372036854775808' + REST,
    "half_a_character": b'{"index":3' + REST.replace(b"poll", b"p\xc3ll"),
}.items():

    def teller(tale: Tale, text: bytes = text) -> Spoilt:
        return Spoilt(tale=tale.acked(1, 2, 3), spoil=in_the_place_of(3, text))

    teller.__name__ = title
    TALES.tale(unknown=BREACHED)(teller)


for title, glue in {"by_nothing": b"", "by_a_comma": b",", "by_a_bell": b"\x0b", "by_a_bit": b"\x1a"}.items():

    def glued(tale: Tale, glue: bytes = glue) -> Spoilt:
        return Spoilt(tale=tale.acked(1, 2, 3), spoil=line(3, lambda before: before.rstrip() + glue))

    def glued_entries(tale: Tale, glue: bytes = glue) -> Spoilt:
        spoil = line(1, lambda before: before.rstrip() + glue, "logs/n2.jsonl")
        return Spoilt(tale=tale.acked(1, 2, 3), spoil=spoil)

    glued.__name__, glued_entries.__name__ = f"lines_glued_{title}", f"entries_glued_{title}"
    TALES.tale(unknown=BREACHED)(glued)
    TALES.tale(unknown=LOGS)(glued_entries)


# -- files --------------------------------------------------------------------------------------------------


@TALES.tale(unknown=BREACHED)
def an_empty_history(tale: Tale) -> Tale:
    tale.acked(1, 2).files["history.jsonl"] = ""
    return tale


@TALES.tale("lost-write bug 2", "malformed-log bug 1", "saw-then-lost bug 2")
def an_empty_leaders_dump(tale: Tale) -> Tale:
    """It is the dump of an empty log, and its row disagrees."""
    tale.acked(1, 2).files["logs/n1.jsonl"] = ""
    return tale


@TALES.tale(unknown=names.unknown_if(names.If.LOG | names.If.LEADERS_LOG))
def empty_rows(tale: Tale) -> Tale:
    tale.acked(1, 2).files["replicas.jsonl"] = "\n  \n"
    return tale


@TALES.tale(unknown=names.OF_THE_TRACE)
def an_empty_trace(tale: Tale) -> Tale:
    tale.acked(1, 2).trace = []
    return tale


@TALES.tale(unknown=LOGS)
def a_followers_dump_is_missing(tale: Tale) -> Tale:
    tale.acked(1, 2).files["logs/n2.jsonl"] = None
    return tale


@TALES.tale(unknown=names.unknown_if(names.If.LOG | names.If.LEADERS_LOG))
def all_dumps_are_missing(tale: Tale) -> Tale:
    tale.acked(1, 2).files |= {f"logs/{node}.jsonl": None for node in tale.logs}
    return tale


@TALES.tale("lost-write bug 1", unknown=LOGS)
def a_missing_dump_hides_no_loss(tale: Tale) -> Tale:
    tale.acked(1, 2).send(1, 3, at=[2]).files["logs/n2.jsonl"] = None
    return tale


@TALES.tale(unknown=LOGS)
def a_replica_is_missing(tale: Tale) -> None:
    tale.acked(1, 2).row("n3")["absent"] = True
    tale.files["logs/n3.jsonl"] = None


@TALES.tale(unknown=LOGS)
def a_folder_where_a_dump_should_be(tale: Tale) -> Spoilt:
    tale.acked(1, 2).files["logs/n2.jsonl"] = None
    return Spoilt(tale=tale, spoil=lambda path: (path / "logs" / "n2.jsonl").mkdir())


@TALES.tale(unknown=names.unknown_if(names.If.LOG | names.If.LEADERS_LOG))
def a_file_where_the_dumps_should_be(tale: Tale) -> Spoilt:
    def spoil(path: Path) -> None:
        for dump in (path / "logs").iterdir():
            dump.unlink()
        (path / "logs").rmdir()
        (path / "logs").write_text("nothing")

    return Spoilt(tale=tale.acked(1, 2), spoil=spoil)


# -- run.json -----------------------------------------------------------------------------------------------

NOTHING_JUDGED = (*names.MADE, names.UNFIT)

for title, about in {
    "no_run": None, "an_empty_run": "", "a_run_too_deep": "[" * 100_000,
    "a_run_of_nodes": '{"format":1,"nodes":5}', "a_run_of_another_format": '{"format":2}',
    "a_run_of_nul": "\0" * 9,
}.items():

    def unjudged(tale: Tale, about: str | None = about) -> Tale:
        tale.acked(1).files["run.json"] = about
        return tale

    unjudged.__name__ = title
    TALES.tale(unknown=NOTHING_JUDGED)(unjudged)


@TALES.tale(unknown=["unseen"])
def final_reads_of_nobody(tale: Tale) -> None:
    """Which process read to the end is unknown, so no record can be called unseen."""
    tale.acked(1, 2).run["final_reads"]["processes"] = "900"


@TALES.tale(unknown=names.OF_THE_TRACE)
def clocks_of_unknown_error(tale: Tale) -> None:
    """Then no time of one node is before one of another."""
    tale.acked(1).run["clock_error_ns"] = "5"
    tale.trace = [{"time": 0, "node": node, "seq": 0, "event": "unfence", "broker": "n1"}
                  for node in ("n1", "n2", "n3", "c")]


@pytest.mark.parametrize("name", TALES.cases())
def test_an_input_gets_its_finding_or_its_reason(name: str, verdicts: dict[str, Verdict]) -> None:
    """No input makes the judge fail, and the rest of the folder is still judged."""
    TALES.check(name, verdicts)


# -- the campaigns ------------------------------------------------------------------------------------------


def test_a_few_mutated_folders(tmp_path: Path) -> None:
    """The laws of soak_laws.py, in one call."""
    soak = Soak(tmp_path / "work", tmp_path / "kept", seed=SEED, batch=MUTATED, inline=True)
    tally = soak.run("mutated", 0, MUTATED)

    assert tally.folders == MUTATED
    assert set(tally.kinds) >= {"base", "harmless", "unreadable", "tampering"}
    assert not tally.wrongs, tally.kept


@pytest.mark.parametrize("campaign", ["histories", "mistyped"])
def test_a_few_beside_the_twin(tmp_path: Path, campaign: str) -> None:
    """Judge and twin agree on every finding; the judge may leave more open for mistyped lines. In one
    call."""
    soak = Soak(tmp_path / "work", tmp_path / "kept", seed=SEED, batch=HISTORIES, inline=True)
    tally = soak.run(campaign, 0, HISTORIES)

    assert tally.folders == HISTORIES
    assert not tally.wrongs, tally.kept


def test_very_many_partitions(tmp_path: Path) -> None:
    """Each costs a little, and the damage in the last one is found (`make soak` uses a million)."""
    (verdict,) = SparkJudge().judge([wide(tmp_path / "wide", partitions=PARTITIONS)])

    assert [(one.name, one.klass, one.count) for one in verdict.findings] == [("lost-write", "bug", 1)]
    assert [one["partition"] for one in verdict.findings[0].examples] == [PARTITIONS - 1]
    assert (verdict.valid, verdict.unknown) == (False, ())


def test_a_wrong_verdict_is_seen() -> None:
    """The laws can fail: a healthy folder called broken, a broken one called valid."""
    from soak_laws import beside_twin, broken, broken_base

    from floodmark.harness.verdict import Finding, Unknown

    lost = Finding(name="lost-write", klass="bug", permitted_by=None, count=1)
    healthy, ill = Verdict(valid=True), Verdict(valid=False, findings=(lost,))
    failed = Verdict(valid="unknown", unknown=(Unknown(names=("unfit",), reason="the judge failed: x"),))
    files = {"run.json": json.dumps({"guarantees": {"unclean_leader_election": False}}).encode()}

    def laws(kind: str, name: str, base: Verdict, verdict: Verdict) -> list[str]:
        return [breach.partition(":")[0] for breach in broken(kind, name, files, base, verdict)]

    assert laws("unreadable", "logs/n1.jsonl", healthy, ill) == ["false alarm"]
    assert laws("unreadable", "history.jsonl", healthy, healthy) == ["false valid"]
    assert laws("quiet", "history.jsonl", healthy, healthy) == []
    assert laws("harmless", "history.jsonl", healthy, ill) == ["not as it was"]
    assert laws("tampering", "history.jsonl", healthy, ill) == []
    assert laws("tampering", "history.jsonl", healthy, failed) == ["traceback"]
    late = Finding(name="realtime-order", klass="bug", permitted_by=None, count=1)
    order = Verdict(valid=False, findings=(late,))
    unknown = Verdict(valid="unknown")
    assert laws("unreadable", "logs/n1.jsonl", order, unknown) == ["false outranks unknown"]
    unseen = Verdict(valid=False, findings=(Finding(name="unseen", klass="bug", permitted_by=None, count=1),))
    assert laws("unreadable", "logs/n1.jsonl", unseen, ill) == []  # the final reads replace the log
    assert laws("unreadable", "logs/n1.jsonl", ill, unseen) == ["false alarm"]
    for reason, breaks in (("logs/n1.jsonl:3: 1 line is no entry", []), ("not settled", ["false alarm"])):
        torn = Verdict(valid="unknown", unknown=(Unknown(names=("unseen",), reason=reason),))
        assert laws("unreadable", "logs/n1.jsonl", torn, ill) == breaks
    short = Finding(name="leader-incomplete", klass="bug", permitted_by=None, count=1)
    excused = (replace(short, klass="permitted", permitted_by="fault budget"),)
    perhaps = Verdict(valid="unknown", findings=excused,
                      unknown=(Unknown(names=(short.name,), reason="a line of the nemesis is broken"),))
    blamed = Verdict(valid=False, findings=(short,))
    assert laws("unreadable", "history.jsonl", blamed, perhaps) == []  # that line may have been the excuse
    surely = replace(perhaps, unknown=())
    assert laws("unreadable", "history.jsonl", blamed, surely) == ["false outranks unknown"]
    assert list(broken_base(frozenset({"lost-write"}), healthy)) != []
    assert list(broken_base(frozenset(), ill)) != []
    assert list(broken_base(frozenset({"lost-write"}), ill)) == []
    valid, lossy = (True, [], []), (False, [("lost-write", "bug", "", 1)], [])
    pairs = (valid, lossy), (lossy, valid), (lossy, lossy)
    assert [len(list(beside_twin(*both))) for both in pairs] == [1, 2, 0]
    assert not list(beside_twin(lossy, ("unknown", [], ["lost-write"])))
