"""Every row of the table "What makes checks unknown", each with a hit, and the findings that are made
beside it."""

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
BREACHED = names.unknown_if(names.If.BREACHED)
OVERLAPPING = (
    "G0-process", "G1c-process", "nonmonotonic-poll", "nonmonotonic-send", "poll-skip", "realtime-order"
)  # fmt: skip


def breach(**fields: object):  # type: ignore[no-untyped-def]
    """Sets these fields of the third line of the history."""

    def edit(lines: list[dict[str, object]]) -> None:
        lines[2] |= fields

    return edit


@TALES.tale(unknown=names.unknown_if(names.If.REPEATED))
def values_that_repeat_cannot_be_traced(tale: Tale) -> None:
    tale.acked(1, 2).send(5, 1, kind="fail").send(6, 2, kind="info").logged(2)


@TALES.tale("lost-write bug 1", unknown=OVERLAPPING)
def overlapping_ops_have_no_order(tale: Tale) -> None:
    tale.logged(2, 1).line(1, "invoke", "send", sends=[{"partition": 0, "value": 1}])
    tale.send(1, 2, at=[0]).line(1, "ok", "send", sends=[{"partition": 0, "value": 1, "offset": 1}])
    tale.send(1, 3, at=[5])


@TALES.tale(unknown=OVERLAPPING)
def ops_of_a_process_after_an_info_have_no_order(tale: Tale) -> None:
    tale.acked(1, 2).send(5, 3, kind="info").poll(5, (1, 2)).poll(5, (0, 1))


@TALES.tale("lost-write bug 1", unknown=BREACHED)
def a_line_that_is_no_json_makes_checks_unknown_and_hides_no_loss(tale: Tale) -> None:
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
def an_ok_poll_without_its_reads_is_a_breach(tale: Tale) -> None:
    tale.acked(1).op(4, "poll")


@TALES.tale()
def a_torn_last_line_blank_lines_and_unknown_fields_are_no_reason(tale: Tale) -> None:
    tale.acked(1).edit = lambda lines: [
        *[line | {"colour": [1, {"a": None}]} for line in lines],
        "\n  \n",
        '{"ind',
    ]
    tale.run["history_lines"] = 6


@TALES.tale(unknown=names.unknown_if(names.If.LOG))
def a_missing_dump_of_a_follower(tale: Tale) -> None:
    tale.acked(1).files["logs/n3.jsonl"] = None


@TALES.tale(unknown=names.unknown_if(names.If.LOG | names.If.LEADERS_LOG))
def a_missing_dump_of_the_leader(tale: Tale) -> None:
    tale.acked(1).send(4, 5, at=[1]).files["logs/n1.jsonl"] = None


@TALES.tale(unknown=names.unknown_if(names.If.LOG | names.If.LEADERS_LOG))
def a_damaged_line_of_the_leaders_dump_is_no_loss(tale: Tale) -> None:
    tale.acked(1, 2).entry("n1", 1)["crc"] = "one"


@TALES.tale("malformed-log bug 1", unknown=names.unknown_if(names.If.LOG))
def findings_of_readable_lines_of_a_damaged_dump_are_made(tale: Tale) -> None:
    tale.acked(1, 2).entry("n3", 1)["epoch"] = None
    tale.entry("n3", 0)["crc_ok"] = False


@TALES.tale(unknown=names.unknown_if(names.If.LOG))
def a_torn_line_in_a_dump(tale: Tale) -> None:
    tale.acked(1).files["logs/n2.jsonl"] = '{"node":"n2","part'


@TALES.tale(unknown=names.unknown_if(names.If.LOG))
def a_damaged_row(tale: Tale) -> None:
    tale.acked(1).row("n3")["leo"] = "six"


@TALES.tale(unknown=names.unknown_if(names.If.LOG))
def a_missing_row(tale: Tale) -> None:
    tale.acked(1).row("n3")["absent"] = True


@TALES.tale(unknown=["saw-then-lost", "under-replicated", "unseen"])
def an_unknown_leader(tale: Tale) -> None:
    tale.acked(1).send(4, 5, at=[1]).final = False
    tale.run["leaders"]["0"].update(leader=None)


@TALES.tale(unknown=["saw-then-lost", "under-replicated", "unseen"])
def an_isr_that_is_no_list_counts_as_unknown(tale: Tale) -> None:
    tale.acked(1).send(4, 5, at=[1]).final = False
    tale.run["leaders"]["0"].update(leader=None, isr=1.5)
    for node in ("n1", "n2", "n3"):
        tale.row(node).update(leader="n1", isr=["n1", "n2", "n3"])


@TALES.tale("lost-write bug 1")
def without_a_leader_by_the_controller_the_rows_of_the_replicas_count(tale: Tale) -> None:
    tale.acked(1).send(4, 5, at=[1]).final = False
    tale.poll(900, (0, 1)).run["leaders"] = {}
    for node in ("n1", "n2", "n3"):
        tale.row(node).update(leader="n2", isr=["n1", "n2", "n3"])


@TALES.tale(unknown=["saw-then-lost", "under-replicated", "unseen"])
def a_leader_whose_own_row_names_another_counts_as_unknown(tale: Tale) -> None:
    tale.acked(1).final = False
    tale.run["leaders"] = {}
    for node in ("n1", "n2", "n3"):
        tale.row(node).update(leader="n2", epoch=1)
    tale.row("n2").update(leader="n1", epoch=0)


@TALES.tale(unknown=["saw-then-lost", "under-replicated", "unseen"])
def a_stopped_node_whose_epochs_cannot_be_read_may_know_of_a_later_leader(tale: Tale) -> None:
    without_a_leader_by_the_controller_the_rows_of_the_replicas_count(tale)
    tale.row("n3").update(running=False, leader=None, epoch=-1, epochs="absent", epochs_unreadable=True)


@TALES.tale(unknown=UNSETTLED)
def not_settled(tale: Tale) -> None:
    tale.acked(1, 2).drop("n3", 1).run["settled"] = False


def open_transaction(tale: Tale, f: str) -> None:
    """An acked record above the last stable offset, which no reader of committed records ever gets."""
    tale.acked(1).send(7, 2, at=[1], f=f).logged(2)
    tale.row("n3")["lso"] = 1


@TALES.tale(unknown=UNSETTLED)
def with_a_transaction_open_at_the_end_the_run_has_not_settled(tale: Tale) -> None:
    open_transaction(tale, "txn")


@TALES.tale()
def in_a_run_without_transactions_a_last_stable_offset_is_somebody_elses(tale: Tale) -> None:
    open_transaction(tale, "send")


@TALES.tale()
def with_every_last_stable_offset_at_the_end_the_run_has_settled(tale: Tale) -> None:
    open_transaction(tale, "txn")
    for node in ("n1", "n2", "n3"):
        tale.row(node)["lso"] = 2


@TALES.tale(unknown=["unseen"])
def no_final_reads(tale: Tale) -> None:
    tale.acked(1).final = False
    tale.run["final_reads"] = {"processes": [], "partitions": []}


@TALES.tale(unknown=[*UNSETTLED, "nonmonotonic-poll", "phantom", "poll-skip"])
def in_a_killed_run_phantoms_are_unknown(tale: Tale) -> None:
    tale.acked(1).logged(77).poll(5, (0, 1)).poll(5, (0, 1)).run["history_lines"] = "absent"


@TALES.tale(unknown=["lost-write", "unseen"])
def an_ack_of_a_probe_counts_as_no_ack(tale: Tale) -> None:
    tale.acked(1, process=40).run["settle"]["processes"] = [40]


@TALES.tale(unknown=["unfit"])
def missed_moments_make_a_run_unfit(tale: Tale) -> None:
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
    """The tale's name states what is expected."""
    TALES.check(name, verdicts)


@pytest.mark.parametrize(
    ("name", "location"),
    [
        ("a_line_that_is_no_json_makes_checks_unknown_and_hides_no_loss", "history.jsonl:11:"),
        ("a_field_of_the_wrong_type_is_a_breach", "history.jsonl:3:"),
        ("an_op_that_completes_twice_is_a_breach", "history.jsonl:5:"),
        ("a_damaged_line_of_the_leaders_dump_is_no_loss", "logs/n1.jsonl:2:"),
        ("a_damaged_row", "replicas.jsonl:3 "),
    ],
)
def test_a_reason_names_file_and_line(name: str, location: str, verdicts: dict[str, Verdict]) -> None:
    """Bad input is reported by file and line."""
    assert any(one.reason.startswith(location) for one in verdicts[name].unknown), verdicts[name].unknown


def test_a_torn_line_is_counted(verdicts: dict[str, Verdict]) -> None:
    """But not as a line of the history."""
    counts = verdicts["a_torn_last_line_blank_lines_and_unknown_fields_are_no_reason"].counts

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


def damaged_folders(root: Path) -> dict[str, Path]:
    """No run.json, another format, a run.json with wrong types, and directories in place of files."""
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
    """Parquet dumps only; one file that only begins and ends as Parquet; one whose footer has one wrong bit,
    which Parquet's reader in Java refuses."""
    readable = Tale().acked(1, 2).send(4, 5, at=[2]).write(root / "parquet")
    for node in ("n1", "n2", "n3"):
        as_parquet(readable, node)
    no_parquet, footer = (Tale().acked(1, 2).write(root / name) for name in ("no-parquet", "footer"))
    for folder in (no_parquet, footer):
        (folder / "logs" / "n2.jsonl").unlink()
    (no_parquet / "logs" / "n2.parquet").write_bytes(b"PAR1 is no Parquet PAR1")
    shutil.copy(Path(__file__).with_name("footer_of_a_dump.parquet"), footer / "logs" / "n2.parquet")
    assert pq.read_table(footer / "logs" / "n2.parquet").num_rows == 2
    return {"parquet": readable, "no-parquet": no_parquet, "footer": footer}


def not_utf8(root: Path) -> dict[str, Path]:
    """Bytes that are not UTF-8, in a word that no check reads."""
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
    """All of these, and a readable one among them."""
    root = tmp_path_factory.mktemp("beside")
    good = Tale().acked(1).send(2, 5, at=[1]).write(root / "good [1] *,{a}")
    folders = {**damaged_folders(root), "good": good, **parquet(root), **not_utf8(root)}
    return dict(zip(folders, SparkJudge().judge(list(folders.values())), strict=True))


def lost_one(verdict: Verdict) -> bool:
    found = [(one.name, one.count) for one in verdict.findings]
    return verdict.valid is False and found == [("lost-write", 1)]


def test_a_damaged_folder_does_not_affect_others(beside: dict[str, Verdict]) -> None:
    damaged = ("bare", "older", "strange", "heap", "no-parquet")
    assert {beside[name].valid for name in damaged} == {"unknown"}
    assert set(names.MADE) < set(beside["bare"].unknown[0].names)
    assert lost_one(beside["good"])


def test_dumps_may_be_parquet(beside: dict[str, Verdict]) -> None:
    """And a footer that Arrow can read is no damage."""
    assert lost_one(beside["parquet"])
    assert beside["parquet"].unknown == ()
    assert beside["parquet"].counts["records"] == {"n1": 2, "n2": 2, "n3": 2}
    assert (beside["footer"].valid, beside["footer"].counts["records"]["n2"]) == (True, 2)


def test_bytes_that_are_not_utf8_make_a_line_unreadable(beside: dict[str, Verdict]) -> None:
    """It may have been another word."""
    unknown_names = [{name for unknown in beside[folder].unknown for name in unknown.names}
            for folder in ("clients", "brokers")]

    assert unknown_names == [{*BREACHED}, {*names.OF_THE_TRACE}]
