"""The sieve where something is not there: logs, a leader, lines that can be read; and dumps as Parquet."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from folders import NODES, Tale

from checkers.chunks import Blemished
from checkers.folder import open_folder
from checkers.sieve import Sieved, sieve
from checkers.sieve_survey import survey_of, told_of
from checkers.survey import Survey
from harness.dump_twin import write_twin


def sieved(path: Path) -> Sieved:
    return sieve(open_folder(path))


def surveyed(path: Path) -> Survey:
    folder = open_folder(path)
    return survey_of(json.loads(json.dumps(told_of(folder, sieve(folder)))))


def odd(passed: Sieved, key: int = 0) -> Sequence[int] | str:
    return "whole" if passed.passed[key].whole else list(passed.passed[key].values)


# -- clients alone ------------------------------------------------------------------------------------------


def imported(tale: Tale, path: Path) -> Path:
    """What an import from elsewhere leaves: a history, and run.json without a word of leaders."""
    tale.final = False
    tale.run |= {"leaders": {}, "settled": False, "final_reads": {}}
    tale.files = {"replicas.jsonl": None, **{f"logs/{node}.jsonl": None for node in NODES}}
    return tale.write(path / "run")


def plain(tale: Tale) -> None:
    tale.poll(8, (0, 1), (1, 2), (2, 3))


def open_and_unread(tale: Tale) -> None:
    """In doubt, failed, acked nobody knows where: nothing is claimed of what was never shown."""
    tale.send(4, 9, kind="info").send(5, 8, kind="fail").send(6, 7).line(7, "invoke", "send", sends=[
        {"partition": 0, "value": 6}])


def doubtful_and_read(tale: Tale) -> None:
    tale.send(7, 9, kind="info").poll(8, (2, 3), (3, 9))


def failed_and_read(tale: Tale) -> None:
    tale.send(7, 9, kind="fail").poll(8, (3, 9))


def nobody_sent(tale: Tale) -> None:
    tale.poll(8, (3, 9))


def read_elsewhere(tale: Tale) -> None:
    tale.send(7, 9, at=[3]).poll(8, (4, 9))


def two_acks_at_one_place(tale: Tale) -> None:
    tale.send(7, 9, at=[2])


def two_fates(tale: Tale) -> None:
    tale.send(7, 9, at=[3]).line(7, "fail", "send", sends=[{"partition": 0, "value": 9}])


def sent_twice(tale: Tale) -> None:
    tale.send(7, 9, at=[3]).send(7, 9, at=[4])


def acked_and_never_asked(tale: Tale) -> None:
    tale.line(7, "ok", "send", sends=[{"partition": 0, "value": 9, "offset": 3}])


@pytest.mark.parametrize(("change", "passes"), [
    (plain, []), (open_and_unread, []), (doubtful_and_read, [9]), (failed_and_read, [9]), (nobody_sent, [9]),
    (read_elsewhere, [9]), (two_acks_at_one_place, [3, 9]), (two_fates, [9]), (sent_twice, [9]),
    (acked_and_never_asked, [9]),
])  # fmt: skip
def test_without_logs_acks_say_what_is_plain(
    change: Callable[[Tale], None], passes: list[int], tmp_path: Path
) -> None:
    """Whatever two clients' words contradict passes, with what stands at its places."""
    tale = Tale().acked(1, 2, 3)
    change(tale)

    assert odd(sieved(imported(tale, tmp_path))) == passes


def skips_what_was_acked(tale: Tale) -> None:
    tale.poll(8, (0, 1)).poll(8, (2, 3))


def skips_what_was_read(tale: Tale) -> None:
    tale.send(7, 9, kind="info").poll(9, (3, 9)).acked(5).poll(8, (2, 3)).poll(8, (4, 5))


def falls(tale: Tale) -> None:
    tale.poll(8, (1, 2)).poll(8, (1, 2))


def far_away(tale: Tale) -> None:
    tale.send(7, 9, at=[1 << 62])


@pytest.mark.parametrize(
    "change", [skips_what_was_acked, skips_what_was_read, falls, far_away]
)
def test_without_logs_disorder_passes_whole(change: Callable[[Tale], None], tmp_path: Path) -> None:
    """What acks and reads prove must not be passed over; what lies far apart is not laid out."""
    tale = Tale().acked(1, 2, 3)
    if change is skips_what_was_read:
        tale.logged(9)  # for the next ack to be behind it
    change(tale)

    assert odd(sieved(imported(tale, tmp_path))) == "whole"


def test_over_what_nobody_proved_a_poll_may_jump(tmp_path: Path) -> None:
    """An offset that no ack and no read has shown may be a control record."""
    tale = Tale().acked(1).logged(None).acked(2).poll(8, (0, 1)).poll(8, (2, 2))

    assert odd(sieved(imported(tale, tmp_path))) == []


# -- some of the logs ---------------------------------------------------------------------------------------


def nobody_leads(tale: Tale) -> None:
    tale.final = False
    tale.run["leaders"]["0"]["leader"] = None


def no_rows(tale: Tale) -> None:
    tale.files["replicas.jsonl"] = None


def no_dump_of_a_follower(tale: Tale) -> None:
    tale.files["logs/n2.jsonl"] = None


def no_dump_of_the_leader(tale: Tale) -> None:
    tale.files["logs/n1.jsonl"] = None


def half_an_entry(tale: Tale) -> None:
    tale.files["logs/n2.jsonl"] = dumped(tale, "n2") + '{"node": "n2", "par'


def no_entry(tale: Tale) -> None:
    lines = dumped(tale, "n2").splitlines(keepends=True)
    tale.files["logs/n2.jsonl"] = "".join([lines[0], "nonsense\n", *lines[2:]])


def dumped(tale: Tale, node: str) -> str:
    return "".join(json.dumps({"node": node, **entry}) + "\n" for entry in tale.logs[node])


LESS = (nobody_leads, no_rows, no_dump_of_a_follower, no_dump_of_the_leader, half_an_entry, no_entry)


@pytest.mark.parametrize("change", LESS)
def test_what_is_left_of_the_logs_is_compared(change: Callable[[Tale], None], tmp_path: Path) -> None:
    """A healthy run lets nothing pass; a record that differs in one log passes."""
    for at, differing in enumerate((False, True)):
        tale = Tale().acked(1, 2, 3)
        if differing:
            tale.entry("n3", 2)["crc"] = 7
        change(tale)

        assert odd(sieved(tale.write(tmp_path / str(at)))) == ([3] if differing else [])


@pytest.mark.parametrize("change", LESS)
def test_a_record_that_one_log_has_alone_passes(change: Callable[[Tale], None], tmp_path: Path) -> None:
    tale = Tale().acked(1, 2, 3).logged(9, nodes=["n3"])
    change(tale)

    assert odd(sieved(tale.write(tmp_path / "run"))) == [9]


def test_where_a_trace_asks_for_acks_a_partition_without_its_leader_passes_whole(tmp_path: Path) -> None:
    """What it shows may be excused by any of them."""
    tale = Tale().acked(1, 2, 3)
    tale.trace = [{"time": 0, "node": "n1", "seq": 0, "event": "start", "clean": True}]
    nobody_leads(tale)

    assert odd(sieved(tale.write(tmp_path / "run"))) == "whole"


# -- lines that cannot be read ------------------------------------------------------------------------------


def edited(lines: Callable[[list[Any]], Any]) -> Tale:
    tale = Tale().acked(1, 2, 3)
    tale.edit = lines
    return tale


@pytest.mark.parametrize("edit", [
    lambda lines: [*lines, "null\n"],
    lambda lines: [*lines, '{"index"'],
    lambda lines: [*lines, '{"index":8} {"index":9}\n'],
    lambda lines: lines[1].update(index="1"),
    lambda lines: lines[1].update(time=1.5),
    lambda lines: lines[1].update(process=True),
    lambda lines: lines[1].update(type="yes"),
    lambda lines: lines[1].update(error=5),
    lambda lines: [*lines, '{"index":8,"time":9} rest}\n'],
    lambda lines: lines[1]["sends"].append(None),
    lambda lines: lines[1]["sends"][0].update(offset=-1),
    lambda lines: lines[0].update(index=1 << 64),
])  # fmt: skip
def test_a_broken_line_is_counted_and_gives_nothing(edit: Callable[[list[Any]], Any], tmp_path: Path) -> None:
    folder = edited(edit).write(tmp_path / "run")
    seen, lines = surveyed(folder), len((folder / "history.jsonl").read_text().splitlines())

    assert (seen.bad, seen.lines) == (1, lines)


def test_braces_in_a_word_break_nothing(tmp_path: Path) -> None:
    folder = edited(lambda lines: lines[1].update(error="}{ } {")).write(tmp_path / "run")

    assert (surveyed(folder).bad, odd(sieved(folder))) == (0, [])


def test_an_op_whose_completion_is_broken_overlaps_and_its_value_passes(tmp_path: Path) -> None:
    folder = edited(lambda lines: lines[1].update(time="x")).write(tmp_path / "run")
    seen = surveyed(folder)

    assert (seen.overlapping, seen.unmatched) == ({1: 2}, None)
    assert odd(sieved(folder)) == [1]


def test_a_completion_whose_invocation_is_broken_fits_none(tmp_path: Path) -> None:
    folder = edited(lambda lines: lines[2].update(time="x")).write(tmp_path / "run")

    assert (surveyed(folder).unmatched, odd(sieved(folder))) == (3, [2])


def test_lines_that_are_not_there_leave_the_others_their_index(tmp_path: Path) -> None:
    seen = surveyed(edited(lambda lines: [*lines[:2], *lines[3:]]).write(tmp_path / "run"))

    assert (seen.bad, seen.in_order, seen.unmatched) == (0, False, 3)


def test_time_that_falls_and_blank_lines_are_told(tmp_path: Path) -> None:
    def edit(lines: list[Any]) -> list[Any]:
        lines[3]["time"] = 5
        return [*lines[:2], "\n", "  \n", *lines[2:]]

    folder = edited(edit).write(tmp_path / "run")
    seen = surveyed(folder)

    assert (seen.falls, seen.bad, seen.in_order, odd(sieved(folder))) == (3, 0, True, [])


def test_a_completion_of_other_values_fits_none(tmp_path: Path) -> None:
    folder = edited(lambda lines: lines[3]["sends"][0].update(value=77)).write(tmp_path / "run")

    assert (surveyed(folder).unmatched, odd(sieved(folder))) == (3, [2, 77])


def test_a_value_that_two_partitions_were_sent_passes_in_both(tmp_path: Path) -> None:
    tale = Tale(partitions=2).acked(1, 2).acked(2, 3, partition=1)
    passed = sieved(tale.write(tmp_path / "run"))

    assert (odd(passed, 0), odd(passed, 1), surveyed(tmp_path / "run").repeated) == ([2], [2], [2])


def test_numbers_at_both_ends_of_64_bits_are_held_apart(tmp_path: Path) -> None:
    """Each of these is above the one before it, if differences are taken in 64 bits."""
    far = 6 * 10**18
    tale = Tale().acked(far, -far, 0).send(7, far, at=[3])
    passed = sieved(tale.write(tmp_path / "run"))

    assert (odd(passed), surveyed(tmp_path / "run").repeated) == ([far], [far])


def test_a_line_without_its_end_is_a_line_if_it_is_whole(tmp_path: Path) -> None:
    folder = Tale().acked(1, 2).write(tmp_path / "run")
    text = (folder / "history.jsonl").read_text()
    (folder / "history.jsonl").write_text(text.rstrip("\n"))

    assert (surveyed(folder).lines, surveyed(folder).bad) == (len(text.splitlines()), 0)


# -- Parquet ------------------------------------------------------------------------------------------------


def twins(folder: Path) -> Path:
    for node in NODES:
        write_twin(folder / "logs" / f"{node}.jsonl")
        (folder / "logs" / f"{node}.jsonl").unlink()
    return folder


def test_dumps_kept_as_parquet_mean_the_same(tmp_path: Path) -> None:
    tale = Tale().acked(1, 2, 3).logged(None).acked(4).send(7, 9, kind="info").logged(9, nodes=NODES[:2])
    tale.entry("n3", 2)["crc"] = 7
    tale.entry("n2", 1)["aborted"] = True
    folder = tale.write(tmp_path / "run")
    before = sieved(folder)
    after = sieved(twins(folder))

    assert odd(before) == odd(after) == [3, 9]
    assert before.passed[0].entries["n1"].tolist() == after.passed[0].entries["n1"].tolist() == [2, 5]


@pytest.mark.parametrize(("column", "kind"), [
    ("offset", pa.string()), ("value", pa.float64()), ("crc_ok", pa.int64()), ("node", pa.binary()),
])  # fmt: skip
def test_parquet_of_other_types_is_refused(column: str, kind: pa.DataType, tmp_path: Path) -> None:
    folder = twins(Tale().acked(1, 2).write(tmp_path / "run"))
    file = folder / "logs" / "n2.parquet"
    table = pq.read_table(file)
    at = table.column_names.index(column)
    pq.write_table(table.set_column(at, column, pa.nulls(table.num_rows, kind)), file)

    with pytest.raises(Blemished):
        sieved(folder)


def test_narrow_integers_and_columns_that_may_be_missing_are_fine(tmp_path: Path) -> None:
    folder = twins(Tale().acked(1, 2).write(tmp_path / "run"))
    file = folder / "logs" / "n2.parquet"
    table = pq.read_table(file).drop_columns(["crc_ok", "aborted"])
    at = table.column_names.index("partition")
    pq.write_table(table.set_column(at, "partition", table["partition"].cast(pa.int32())), file)

    assert odd(sieved(folder)) == []
