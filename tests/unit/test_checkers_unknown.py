"""Every row of the table "What makes checks unknown", each with a hit, and what a finding is worth beside
it."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from folders import Tale
from judging import Tales
from traced_story import Story

from floodmark.checkers.judge.job import SparkJudge
from floodmark.checkers.laws import finding_names as names
from floodmark.harness.verdict import Verdict

pytestmark = pytest.mark.spark
TALES = Tales()
verdicts = TALES.fixture()
UNSETTLED = ("diverged", "under-replicated", "unseen")
BREACHED = names.OF_THE_HISTORY
OVERLAPPING = (
    "G0-process", "G1c-process", "nonmonotonic-poll", "nonmonotonic-send", "poll-skip", "realtime-order"
)  # fmt: skip


def breach(**fields: object):  # type: ignore[no-untyped-def]
    """Puts these fields into the third line of the history."""

    def edit(lines: list[dict[str, object]]) -> None:
        lines[2] |= fields

    return edit


@TALES.tale(unknown=set(names.MADE) - {*names.OF_THE_LOGS, *names.OF_THE_TRACE, "end-offset-regressed"})
def values_that_repeat_cannot_be_traced(tale: Tale) -> None:
    tale.acked(1, 2).send(5, 1, kind="fail").send(6, 2, kind="info").logged(2)


@TALES.tale("lost-write bug 1", unknown=OVERLAPPING)
def overlapping_ops_have_no_order(tale: Tale) -> None:
    tale.logged(2, 1).line(1, "invoke", "send", sends=[{"partition": 0, "value": 1}])
    tale.send(1, 2, at=[0]).line(1, "ok", "send", sends=[{"partition": 0, "value": 1, "offset": 1}])
    tale.send(1, 3, at=[5])


@TALES.tale(unknown=OVERLAPPING)
def a_process_asks_nothing_after_an_info(tale: Tale) -> None:
    tale.acked(1, 2).send(5, 3, kind="info").poll(5, (1, 2)).poll(5, (0, 1))


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def a_line_that_is_no_json_spoils_its_checks_and_hides_no_loss(tale: Tale) -> None:
    tale.acked(1).logged(77).poll(5, (0, 1)).send(6, 3, at=[4]).edit = lambda lines: [*lines, "{nonsense\n"]


@TALES.tale(unknown=BREACHED)
def a_field_of_the_wrong_type_is_a_breach(tale: Tale) -> None:
    tale.acked(1, 2, 3).edit = breach(time="soon")


@TALES.tale(unknown=BREACHED)
def an_index_out_of_place_is_a_breach(tale: Tale) -> None:
    tale.acked(1, 2, 3).edit = lambda lines: lines[-1].update(index=40)


@TALES.tale(unknown=BREACHED)
def time_that_falls_is_a_breach(tale: Tale) -> None:
    tale.acked(1, 2, 3).edit = lambda lines: lines[-1].update(time=1)


@TALES.tale(unknown=BREACHED)
def an_op_that_completes_twice_is_a_breach(tale: Tale) -> None:
    tale.acked(1, 2).line(1, "ok", "send", sends=[{"partition": 0, "value": 2, "offset": 1}])


@TALES.tale(unknown=BREACHED)
def a_completion_of_other_values_is_a_breach(tale: Tale) -> None:
    tale.acked(1).logged(3).line(4, "invoke", "send", sends=[{"partition": 0, "value": 2}])
    tale.line(4, "ok", "send", sends=[{"partition": 0, "value": 3, "offset": 1}])


@TALES.tale(unknown=BREACHED)
def fewer_lines_than_were_written_is_a_breach(tale: Tale) -> None:
    tale.acked(1).run["history_lines"] = 40


@TALES.tale(unknown=BREACHED)
def an_ok_poll_must_say_what_it_read(tale: Tale) -> None:
    tale.acked(1).op(4, "poll")


@TALES.tale()
def half_a_last_line_blank_lines_and_unknown_fields_are_no_reason(tale: Tale) -> None:
    tale.acked(1).edit = lambda lines: [
        *[line | {"colour": [1, {"a": None}]} for line in lines],
        "\n  \n",
        '{"ind',
    ]
    tale.run["history_lines"] = 6


@TALES.tale(unknown=names.OF_THE_LOGS)
def a_missing_dump_of_a_follower(tale: Tale) -> None:
    tale.acked(1).files["logs/n3.jsonl"] = None


@TALES.tale(unknown=[*names.OF_THE_LOGS, *names.OF_THE_LOG_ALONE])
def a_missing_dump_of_the_leader(tale: Tale) -> None:
    tale.acked(1).send(4, 5, at=[1]).files["logs/n1.jsonl"] = None


@TALES.tale(unknown=[*names.OF_THE_LOGS, *names.OF_THE_LOG_ALONE])
def a_damaged_line_of_the_leaders_dump_is_no_loss(tale: Tale) -> None:
    tale.acked(1, 2).entry("n1", 1)["crc"] = "one"


@TALES.tale("malformed-log bug 1", unknown=names.OF_THE_LOGS)
def what_a_damaged_dump_shows_still_stands(tale: Tale) -> None:
    tale.acked(1, 2).entry("n3", 1)["epoch"] = None
    tale.entry("n3", 0)["crc_ok"] = False


@TALES.tale(unknown=names.OF_THE_LOGS)
def half_a_line_in_a_dump(tale: Tale) -> None:
    tale.acked(1).files["logs/n2.jsonl"] = '{"node":"n2","part'


@TALES.tale(unknown=names.OF_THE_LOGS)
def a_row_that_is_none(tale: Tale) -> None:
    tale.acked(1).row("n3")["leo"] = "six"


@TALES.tale(unknown=names.OF_THE_LOGS)
def a_row_that_is_missing(tale: Tale) -> None:
    tale.acked(1).row("n3")["absent"] = True


@TALES.tale(unknown=["saw-then-lost", "under-replicated", "unseen"])
def nobody_knows_the_leader(tale: Tale) -> None:
    tale.acked(1).send(4, 5, at=[1]).final = False
    tale.run["leaders"]["0"].update(leader=None)


@TALES.tale(unknown=["saw-then-lost", "under-replicated", "unseen"])
def an_isr_that_is_no_list_is_none(tale: Tale) -> None:
    tale.acked(1).send(4, 5, at=[1]).final = False
    tale.run["leaders"]["0"].update(leader=None, isr=1.5)
    for node in ("n1", "n2", "n3"):
        tale.row(node).update(leader="n1", isr=["n1", "n2", "n3"])


@TALES.tale("lost-write bug 1")
def without_the_controllers_word_the_replicas_agree_on_the_leader(tale: Tale) -> None:
    tale.acked(1).send(4, 5, at=[1]).final = False
    tale.poll(900, (0, 1)).run["leaders"] = {}
    for node in ("n1", "n2", "n3"):
        tale.row(node).update(leader="n2", isr=["n1", "n2", "n3"])


@TALES.tale(unknown=["saw-then-lost", "under-replicated", "unseen"])
def a_leader_that_does_not_say_so_itself_is_none(tale: Tale) -> None:
    tale.acked(1).final = False
    tale.run["leaders"] = {}
    for node in ("n1", "n2", "n3"):
        tale.row(node).update(leader="n2", epoch=1)
    tale.row("n2").update(leader="n1", epoch=0)


@TALES.tale(unknown=UNSETTLED)
def not_settled(tale: Tale) -> None:
    tale.acked(1, 2).drop("n3", 1).run["settled"] = False


@TALES.tale(unknown=["unseen"])
def no_final_reads(tale: Tale) -> None:
    tale.acked(1).final = False
    tale.run["final_reads"] = {"processes": [], "partitions": []}


@TALES.tale(unknown=[*UNSETTLED, "nonmonotonic-poll", "phantom", "poll-skip"])
def a_run_that_was_killed_claims_no_phantoms(tale: Tale) -> None:
    tale.acked(1).logged(77).poll(5, (0, 1)).poll(5, (0, 1)).run["history_lines"] = "absent"


@TALES.tale(unknown=["lost-write", "unseen"])
def nothing_was_acked_and_a_probe_counts_not(tale: Tale) -> None:
    tale.acked(1, process=40).run["settle"]["processes"] = [40]


@TALES.tale(unknown=["unfit"])
def moments_that_never_came_make_a_run_unfit(tale: Tale) -> None:
    tale.acked(1).run["missed"] = [2]


@TALES.tale()
def huge_numbers_are_numbers(tale: Tale) -> None:
    big = (1 << 62) - 1
    tale.send(1, -(1 << 63), at=[big]).send(2, (1 << 63) - 1, at=[big + 1])
    for node in ("n1", "n2", "n3"):
        for offset, value in ((big, -(1 << 63)), (big + 1, (1 << 63) - 1)):
            tale.logs[node].append({"partition": 0, "offset": offset, "epoch": 3, "value": value, "crc": 1})


@pytest.mark.parametrize("name", TALES.cases())
def test_tale(name: str, verdicts: dict[str, Verdict]) -> None:
    """The tale's name says what must be so."""
    TALES.check(name, verdicts)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("a_line_that_is_no_json_spoils_its_checks_and_hides_no_loss", "history.jsonl:11:"),
        ("a_field_of_the_wrong_type_is_a_breach", "history.jsonl:3:"),
        ("an_op_that_completes_twice_is_a_breach", "history.jsonl:5:"),
        ("a_damaged_line_of_the_leaders_dump_is_no_loss", "logs/n1.jsonl:2:"),
        ("a_row_that_is_none", "replicas.jsonl:3 "),
    ],
)
def test_a_reason_names_file_and_line(name: str, where: str, verdicts: dict[str, Verdict]) -> None:
    """Bad input is told by file and line."""
    assert any(one.reason.startswith(where) for one in verdicts[name].unknown), verdicts[name].unknown


def test_half_a_line_is_counted(verdicts: dict[str, Verdict]) -> None:
    """It is no line of the history."""
    counts = verdicts["half_a_last_line_blank_lines_and_unknown_fields_are_no_reason"].counts

    assert (counts["torn"], counts["ops"]) == (1, 6)


def as_parquet(folder: Path, node: str) -> None:
    """The dump of this node as Parquet instead."""
    lines = folder / "logs" / f"{node}.jsonl"
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    flags = ("crc_ok", "aborted")
    names_of_columns = ("node", "partition", "offset", "epoch", "value", "crc")
    table = pa.table(
        {name: pa.array([row.get(name) for row in rows], None if name == "node" else pa.int64())
         for name in names_of_columns}
        | {name: pa.array([row.get(name) for row in rows], pa.bool_()) for name in flags}
    )  # fmt: skip
    pq.write_table(table, folder / "logs" / f"{node}.parquet")
    lines.unlink()


def rotten(root: Path) -> dict[str, Path]:
    """No run.json, another format, a run.json that is none, and directories where files should be."""
    bare = root / "bare"
    bare.mkdir()
    older = Tale()
    older.run["format"] = 0
    strange = Tale().acked(1)
    strange.run.update(nodes=5, settle=3)
    heap = Tale().acked(1).write(root / "heap")
    for name in ("history.jsonl", "logs/n1.jsonl", "replicas.jsonl"):
        (heap / name).unlink()
        (heap / name).mkdir()
    return {"bare": bare, "older": older.write(root / "older"), "strange": strange.write(root / "strange"),
            "heap": heap}


def parquet(root: Path) -> dict[str, Path]:
    """The same columns, alone; one file that only begins and ends as Parquet; one of whose footer one bit is
    wrong, which Parquet's reader in Java refuses."""
    sound = Tale().acked(1, 2).send(4, 5, at=[2]).write(root / "parquet")
    for node in ("n1", "n2", "n3"):
        as_parquet(sound, node)
    no_parquet, footer = (Tale().acked(1, 2).write(root / name) for name in ("no-parquet", "footer"))
    for folder in (no_parquet, footer):
        (folder / "logs" / "n2.jsonl").unlink()
    (no_parquet / "logs" / "n2.parquet").write_bytes(b"PAR1 is no Parquet PAR1")
    shutil.copy(Path(__file__).with_name("footer_of_a_dump.parquet"), footer / "logs" / "n2.parquet")
    assert pq.read_table(footer / "logs" / "n2.parquet").num_rows == 2
    return {"parquet": sound, "no-parquet": no_parquet, "footer": footer}


def no_text(root: Path) -> dict[str, Path]:
    """Bytes that are no text in a word that no check asks for."""
    story = Story().begin().produce().say("n1", "sneeze")
    of_clients, of_brokers = Tale().acked(1).fault("kill", "n1"), Tale().acked(1)
    of_brokers.trace = story.lines
    folders = {"clients": of_clients.write(root / "clients"), "brokers": of_brokers.write(root / "brokers")}
    for file, word in ((folders["clients"] / "history.jsonl", b"kill"),
                       (folders["brokers"] / "trace.jsonl", b"sneeze")):
        text = file.read_bytes()
        assert text.count(word) == 1
        file.write_bytes(text.replace(word, word[:2] + b"\xc3("))
    return folders


@pytest.fixture(scope="module", name="beside")
def judged_in_one_call(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Verdict]:
    """All of these, and a good one among them."""
    root = tmp_path_factory.mktemp("beside")
    good = Tale().acked(1).send(2, 5, at=[1]).write(root / "good [1] *,{a}")
    folders = {**rotten(root), "good": good, **parquet(root), **no_text(root)}
    return dict(zip(folders, SparkJudge().judge(list(folders.values())), strict=True))


def lost_one(verdict: Verdict) -> bool:
    found = [(one.name, one.count) for one in verdict.findings]
    return verdict.valid is False and found == [("lost-write", 1)]


def test_a_rotten_folder_spoils_nobody_else(beside: dict[str, Verdict]) -> None:
    spoilt = ("bare", "older", "strange", "heap", "no-parquet")
    assert {beside[name].valid for name in spoilt} == {"unknown"}
    assert set(names.MADE) < set(beside["bare"].unknown[0].names)
    assert lost_one(beside["good"])


def test_dumps_may_be_parquet(beside: dict[str, Verdict]) -> None:
    """And a footer that Arrow reads all the same damages nothing."""
    assert lost_one(beside["parquet"])
    assert beside["parquet"].unknown == ()
    assert beside["parquet"].counts["records"] == {"n1": 2, "n2": 2, "n3": 2}
    assert (beside["footer"].valid, beside["footer"].counts["records"]["n2"]) == (True, 2)


def test_bytes_that_are_no_text_make_a_line_unreadable(beside: dict[str, Verdict]) -> None:
    """It may have been another word."""
    told = [{name for unknown in beside[folder].unknown for name in unknown.names}
            for folder in ("clients", "brokers")]

    assert told == [{*BREACHED}, {*names.OF_THE_TRACE}]
