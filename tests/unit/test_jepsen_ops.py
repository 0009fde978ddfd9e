"""Jepsen's ops converted into format 1 one by one: what each becomes, and what is counted."""

import json
from pathlib import Path

import pytest
from jepsen_text import POLL, READ, SEND, imported, nemesis, numbered, places

from floodmark.harness.importers.jepsen_names import LIFE, SPAN
from floodmark.harness.op import NEMESIS, Type

# -- sends and reads ----------------------------------------------------------------------------------------


def test_a_send_and_a_poll_are_as_in_jepsen(tmp_path: Path) -> None:
    run = imported(tmp_path, numbered(
        *SEND, POLL, ":type :ok, :f :poll, :value [[:poll {0 [[5 1] [6 2]], 3 [[0 1]]}]]"))

    assert [(op.type, op.f) for op in run.ops] == [
        (Type.INVOKE, "send"), (Type.OK, "send"), (Type.INVOKE, "poll"), (Type.OK, "poll")]
    assert places(run.ops[0]) == [(0, None, 1)]
    assert places(run.ops[1]) == [(0, 5, 1)]
    assert places(run.ops[3]) == [(0, 5, 1), (0, 6, 2), (3, 0, 3 * SPAN + 1)]
    assert [op.time for op in run.ops] == [0, 1000, 2000, 3000]
    assert run.origin["left_out"] == run.origin["changed"] == {}


def test_values_that_were_unique_in_their_key_are_unique_in_the_run(tmp_path: Path) -> None:
    run = imported(tmp_path, numbered(
        ":type :invoke, :f :txn, :value [[:send 0 1] [:send 1 1] [:send 7 1]]"))
    assert [send.value for send in run.ops[0].sends or ()] == [1, SPAN + 1, 7 * SPAN + 1]


@pytest.mark.parametrize(("value", "offset"), [
    ("[[:send 0 [5 1]]]", 5), ("([:send 0 (5 1)])", 5), ("[[:send 0 [nil 1]]]", None),
    ("[[:send 0 1]]", None), ("nil", None), ("[[:send 0 [-1 1]]]", None), ("[[:send 0 [1.5 1]]]", None),
    ("[[:send 0 [9223372036854775808 1]]]", None),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["ok", "fail", "info"])
def test_a_completion_has_the_offset_if_jepsen_has_it(
    tmp_path: Path, kind: str, value: str, offset: int | None
) -> None:
    """A completion without a value has that of its invocation, so the pair stays complete."""
    run = imported(tmp_path, numbered(SEND[0], f":type :{kind}, :f :send, :value {value}"))
    assert places(run.ops[1]) == [(0, offset, 1)]
    odd = "-1" in value or "1.5" in value or "922" in value
    assert run.origin["left_out"] == ({"invalid offset of a send": 1} if odd else {})


def test_what_a_txn_sends_and_reads_is_one_line(tmp_path: Path) -> None:
    run = imported(tmp_path, numbered(
        ":type :invoke, :f :txn, :value [[:poll] [:send 1 4] [:poll]]",
        ":type :ok, :f :txn, :value [[:poll {0 [[1 1]]}] [:send 1 [9 4]] [:poll {0 [[2 2]]}]]",
        ":type :invoke, :f :txn, :value [[:send 1 5] [:poll]]",
        ":type :fail, :f :txn, :value [[:send 1 [10 5]] [:poll]], :error {:type :abort, :body-error \"x\"}"))
    assert [op.f for op in run.ops] == ["txn"] * 4
    assert places(run.ops[1]) == [(1, 9, SPAN + 4), (0, 1, 1), (0, 2, 2)]
    assert run.ops[2].reads is None
    assert (run.ops[3].type, run.ops[3].error, places(run.ops[3])) == (
        Type.FAIL, "ABORT", [(1, 10, SPAN + 5)])
    assert run.origin["left_out"] == {"text of an error": 1}


@pytest.mark.parametrize(("f", "value", "written"), [
    ("send", "[[:send 0 1] [:send 0 2]]", "send"), ("poll", "[[:poll] [:poll]]", "poll"),
    ("send", "[[:send 0 1] [:poll]]", "txn"), ("poll", "[[:poll] [:send 0 1]]", "txn"),
    ("send", "[]", "txn"), ("poll", "[]", "poll"), ("txn", "[]", "txn"),
])  # fmt: skip
def test_an_op_has_the_name_of_what_it_does(tmp_path: Path, f: str, value: str, written: str) -> None:
    """Format 1's send sends and its poll reads; both at once is a txn. The completion has the same name."""
    run = imported(tmp_path, numbered(f":type :invoke, :f :{f}, :value {value}",
                                      f":type :ok, :f :{f}, :value {value}"))
    assert [op.f for op in run.ops] == [written, written]


def test_a_completion_of_another_op_is_kept_for_the_judge(tmp_path: Path) -> None:
    run = imported(tmp_path, numbered(
        SEND[0], ":type :ok, :f :poll, :value [[:poll {0 [[1 1]]}]]",
        SEND[0], ":type :ok, :f :send, :value [[:send 0 [5 2]]]"))
    assert [op.f for op in run.ops] == ["send", "poll", "send", "send"]
    assert places(run.ops[1]) == [(0, 1, 1)]  # the send's values are not the poll's
    assert places(run.ops[3]) == [(0, 5, 2)]


def test_info_and_fail_polls_keep_their_reads(tmp_path: Path) -> None:
    run = imported(tmp_path, numbered(
        POLL, ":type :fail, :f :poll, :value [[:poll {0 [[1 1]]}]], :error :timeout",
        POLL, ":type :info, :f :poll, :value [[:poll {0 [[1 1]]}] [:poll]], :error [:disconnect \"gone\"]"))
    assert [places(op) for op in run.ops] == [[], [(0, 1, 1)], [], [(0, 1, 1)]]
    assert [op.error for op in run.ops] == [None, "TIMEOUT", None, "CONNECTION"]


# -- odd names ----------------------------------------------------------------------------------------------


def test_odd_values_get_a_number_each_and_the_folder_lists_them(tmp_path: Path) -> None:
    """One to one: 1, 1.0, "1", true and [1 1] are five values; no two keys share a number."""
    run = imported(tmp_path, numbered(
        ':type :invoke, :f :send, :value [[:send 0 1] [:send 0 1.0] [:send 0 "1"] [:send 0 true] '
        '[:send 0 [1 1]] [:send 0 -3] [:send 0 1000000000000] [:send 1 "1"] [:send 0 nil]]',
        ':type :ok, :f :send, :value [[:send 0 [0 1]] [:send 0 [1 1.0]] [:send 0 [2 "1"]] '
        '[:send 0 [3 true]] [:send 0 [4 [1 1]]] [:send 0 [5 -3]] [:send 0 [6 1000000000000]] '
        '[:send 1 [0 "1"]] [:send 0 [7 nil]]]',
        POLL, ':type :ok, :f :poll, :value [[:poll {0 [[2 "1"] [7 nil]]}]]'))
    invoked, done = ([send.value for send in op.sends or ()] for op in run.ops[:2])
    assert invoked == done == [1, -1, -2, -3, -4, -5, -6, -7, -8]
    assert places(run.ops[1])[4] == (0, 4, -4)
    assert places(run.ops[3]) == [(0, 2, -2), (0, 7, -8)]
    legend = [json.loads(line) for line in (run.folder / "values.jsonl").read_text().splitlines()]
    assert legend[1] == {"value": -2, "partition": 0, "was": '"1"'}
    assert len(legend) == 8
    assert run.origin["odd_values"] == "values.jsonl"


def test_a_pair_as_the_value_of_a_send_is_no_offset_and_value(tmp_path: Path) -> None:
    """The completion of an info op repeats the value of the invocation, which is a pair here."""
    run = imported(tmp_path, numbered(":type :invoke, :f :send, :value [[:send 0 [3 4]]]",
                                      ":type :info, :f :send, :value [[:send 0 [3 4]]]"))
    assert places(run.ops[1]) == places(run.ops[0]) == [(0, None, -1)]


def test_keys_of_any_kind_are_partitions_one_to_one(tmp_path: Path) -> None:
    run = imported(tmp_path, numbered(
        ':type :invoke, :f :subscribe, :value [2 "5" :k "x" 5 -1 [0 1] 0]',
        ':type :ok, :f :subscribe, :value [2 "5" :k "x" 5 -1 [0 1] 0]', *SEND))
    topics = {key: partition["topic"] for key, partition in run.about["partitions"].items()}
    assert topics == {
        "2": "2", "5": '"5"', "0": ":k", "1": '"x"', "3": "5", "4": "-1", "6": "[0 1]", "7": "0"}
    assert run.ops[1].partitions == (0, 1, 2, 3, 4, 5, 6, 7)
    assert places(run.ops[2]) == [(7, None, 7 * SPAN + 1)]
    assert run.origin["changed"]["key with a number of its own (partitions: topic)"] == 7


FINAL = (":type :invoke, :f :assign, :value [0 1], :seek-to-beginning? true",
         ":type :ok, :f :assign, :value [0 1], :seek-to-beginning? true")


def in_strings(*ops: str) -> tuple[str, ...]:
    """The ops with the keys 0 and 1 as strings."""
    return tuple(op.replace("[:send 0 ", '[:send "0" ').replace("{0 ", '{"0" ') for op in ops)


@pytest.mark.parametrize("ops", [
    (*in_strings(*SEND), *FINAL, *in_strings(*READ)), (*FINAL, *in_strings(*SEND, *READ)),
], ids=["at the end", "at the beginning"])  # fmt: skip
def test_a_key_that_is_only_assigned_is_the_used_one_with_its_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ops: tuple[str, ...]
) -> None:
    """All histories of Maelstrom have strings as keys, and integers in their last assigns."""
    run = imported(tmp_path, numbered(*ops))

    assert {key: each["topic"] for key, each in run.about["partitions"].items()} == {"0": '"0"', "1": "1"}
    assert {tuple(op.partitions or ()) for op in run.ops if op.f == "assign"} == {(0, 1)}
    assert {item.partition for op in run.ops for item in (*(op.sends or ()), *(op.reads or ()))} == {0}
    assert "changed: 1 x key that is only assigned, taken for the used one with its text" in (
        capsys.readouterr().err)


def test_two_keys_with_one_text_that_are_both_used_are_two_partitions(tmp_path: Path) -> None:
    """Also if one of them was only assigned for a while."""
    run = imported(tmp_path, numbered(*in_strings(*SEND), *FINAL, *READ))

    assert len(run.about["partitions"]) == 3
    assert [op.partitions for op in run.ops if op.f == "assign"] == [(1, 2)] * 2
    assert [item.partition for op in run.ops for item in (*(op.sends or ()), *(op.reads or ()))] == [0, 0, 1]
    assert not [label for label in run.origin["changed"] if "only assigned" in label]


def test_a_sets_keys_are_numbered_in_a_fixed_order(tmp_path: Path) -> None:
    """A set has no order of its own: :a is 0 and :e is 4."""
    run = imported(tmp_path, numbered(":type :invoke, :f :assign, :value #{:d :a :c :b :e}", *SEND))
    topics = [run.about["partitions"][str(number)]["topic"] for number in range(5)]
    assert topics == [":a", ":b", ":c", ":d", ":e"]


def test_a_read_of_nil_that_was_not_sent_is_left_out(tmp_path: Path) -> None:
    run = imported(tmp_path, numbered(
        *SEND, POLL, ":type :ok, :f :poll, :value [[:poll {0 [[5 1] [6 nil]]}]]"))
    assert places(run.ops[3]) == [(0, 5, 1)]
    assert run.origin["left_out"] == {"read of nil, which was not sent": 1}


# -- positions ----------------------------------------------------------------------------------------------


def seek(value: str = "true") -> tuple[str, str]:
    return (f":type :invoke, :f :assign, :value [0], :seek-to-beginning? {value}",
            f":type :ok, :f :assign, :value [0], :seek-to-beginning? {value}")




def test_a_process_that_seeks_the_beginning_gets_a_new_number(tmp_path: Path) -> None:
    run = imported(tmp_path, numbered(*seek(), *READ, *seek(), *READ, *seek("false"), *READ, *seek(), *READ))
    assert [op.process for op in run.ops] == [0] * 4 + [LIFE] * 8 + [2 * LIFE] * 4
    assert run.origin["changed"] == {"process in another life: it sought the beginning": 2}


def test_a_read_without_an_offset_removes_its_partition_and_the_position(
    tmp_path: Path,
) -> None:
    run = imported(tmp_path, numbered(
        POLL, ":type :ok, :f :poll, :value [[:poll {0 [[5 1] [nil 2] [7 3]], 1 [[0 1]]}]]", *READ))
    assert places(run.ops[1]) == [(1, 0, SPAN + 1)]
    assert [op.process for op in run.ops] == [0, 0, LIFE, LIFE]
    assert run.origin["left_out"] == {"read of a partition of which one had no offset": 2,
                                    "read without an offset": 1}


def test_a_process_that_subscribed_keeps_its_number(tmp_path: Path) -> None:
    """A new number would have no subscribe, which permits its jumps."""
    subscribe = ":type :invoke, :f :subscribe, :value [0]", ":type :ok, :f :subscribe, :value [0]"
    blind = POLL, ":type :ok, :f :poll, :value [[:poll {0 [[nil 2]]}]]"
    run = imported(tmp_path, numbered(*subscribe, *blind, *READ))
    assert {op.process for op in run.ops} == {0}


@pytest.mark.parametrize(("log", "reads", "polls"), [
    ("[{:keys [0]}]", "{0 [[1 1] [4 2]]}", ["0:1", "0:4"]),
    ("[{:keys [0]}]", "{0 [[1 1] [1 1]]}", ["0:1", "0:1"]),
    ("[{:keys [3]} {:keys [0]}]", "{0 [[2 2] [1 1] [2 2]]}", ["0:2", "0:1 0:2"]),
    ("[{:type :lost}]", "{0 [[2 2] [1 1]], 3 [[7 7] [5 5]]}", ["0:2 3:7", "0:1 3:5"]),
    ("[{:keys [0]}]", "{0 [[5 5] [3 3] [1 1]], 3 [[7 7] [5 5]]}", ["0:5 3:7 3:5", "0:3", "0:1"]),
    ("[{:keys [0]}]", "{0 [[1 1] [2 2]]}", ["0:1 0:2"]),
    ("[{:keys [1]}]", "{0 [[2 2] [1 1]], 1 [[5 5]]}", ["0:2 0:1 1:5"]),
    ("[]", "{0 [[2 2] [1 1]]}", ["0:2 0:1"]), ("nil", "{0 [[2 2] [1 1]]}", ["0:2 0:1"]),
])  # fmt: skip
@pytest.mark.parametrize("move", ["assign", "subscribe"])
def test_only_reads_of_a_partition_reassigned_in_the_op_may_be_out_of_order(
    tmp_path: Path, log: str, reads: str, polls: list[str], move: str
) -> None:
    """Out-of-order reads get a poll of their own, before which the process gives up that partition and keeps
    its others. All other reads stay in one poll."""
    assigned = f":type :invoke, :f :{move}, :value [0 7]", f":type :ok, :f :{move}, :value [0 7]"
    run = imported(tmp_path, numbered(
        *assigned, POLL, *(f":process 1, {op}" for op in SEND),
        f":type :ok, :f :poll, :value [[:poll {reads}]], :rebalance-log {log}"))
    mine = [op for op in run.ops if op.process == 0]
    found = [" ".join(f"{read.partition}:{read.offset}" for read in op.reads or ())
             for op in mine if op.f == "poll" and op.type is Type.OK]
    assert found == polls
    assert [(op.f, op.type) for op in mine[4:]] == [
        (move, Type.INVOKE), (move, Type.OK), (move, Type.INVOKE), (move, Type.OK), ("poll", Type.INVOKE),
        ("poll", Type.OK)] * (len(polls) - 1)
    for number, moves in enumerate(zip(mine[5::6], mine[7::6], strict=True), 1):
        given_up = {int(read.split(":")[0]) for read in polls[number].split()}
        kept, regained = (set(op.partitions or ()) for op in moves)
        assert kept == regained - given_up
        assert regained >= given_up | {0, 7}
    assert sum(run.origin["changed"].values()) == len(polls) - 1


@pytest.mark.parametrize("kind", ["fail", "info"])
def test_a_separated_read_of_a_fail_or_info_poll_has_no_assign(tmp_path: Path, kind: str) -> None:
    run = imported(tmp_path, numbered(
        POLL, f":type :{kind}, :f :poll, :value [[:poll {{0 [[5 5] [3 3]], 1 [[1 1]]}}]], "
        ":rebalance-log [{:keys [0]}]"))
    assert [(op.process, op.type, op.f, places(op)) for op in run.ops] == [
        (0, Type.INVOKE, "poll", []), (0, kind, "poll", [(0, 5, 5), (1, 1, SPAN + 1)]),
        (LIFE, Type.INVOKE, "poll", []), (LIFE, kind, "poll", [(0, 3, 3)])]


def test_a_txn_keeps_its_sends_and_its_order_too(tmp_path: Path) -> None:
    run = imported(tmp_path, numbered(
        ":type :invoke, :f :txn, :value [[:poll] [:send 1 4] [:poll]]",
        ":type :ok, :f :txn, :value [[:poll {0 [[5 5]]}] [:send 1 [9 4]] [:poll {0 [[2 2]]}]], "
        ":rebalance-log [{:keys [0]}]"))
    assert [op.f for op in run.ops] == ["txn", "txn", "assign", "assign", "assign", "assign", "poll", "poll"]
    assert places(run.ops[1]) == [(1, 9, SPAN + 4), (0, 5, 5)]
    assert places(run.ops[7]) == [(0, 2, 2)]


# -- the nemesis, and lines that are no op -------------------------------------------------------------------


def test_an_act_of_the_nemesis_is_one_line_at_its_completion(tmp_path: Path) -> None:
    run = imported(tmp_path, nemesis(
        ":f :kill, :value :primaries", ':f :kill, :value {"n1" :killed, "n2" "x"}',
        ":f :start-partition, :value :one",
        ':f :start-partition, :value [:isolated {"n3" #{"n1" "n2"}, "n1" #{"n3"}}]',
        ":f :stop-partition, :value nil", ":f :stop-partition, :value :network-healed",
        ":f :start, :value :all", ':f :start, :value {"n1" "", "n2" "", "n3" ""}'))
    acts = [op for op in run.ops if op.process == NEMESIS]
    assert [(op.f, op.type, (op.fault or {})["nodes"]) for op in acts] == [
        ("kill", Type.INFO, ["n1", "n2"]), ("cut", Type.INFO, ["n1", "n2", "n3"]), ("heal", Type.INFO, []),
        ("start", Type.INFO, ["n1", "n2", "n3"])]
    assert [op.time for op in acts] == [3000, 5000, 7000, 9000]
    assert [(op.fault or {})["began"] for op in acts] == [2000, 4000, 6000, 8000]
    assert (acts[1].fault or {})["grudge"] == {"n1": ["n3"], "n3": ["n1", "n2"]}
    assert not any("lost" in (op.fault or {}) for op in acts)
    assert run.about["nodes"] == ["n1", "n2", "n3"]
    assert run.about["partitions"]["0"]["replicas"] == ["n1", "n2", "n3"]


def test_an_act_that_may_lose_data_permits_losses_and_so_does_an_unknown_one(tmp_path: Path) -> None:
    run = imported(tmp_path, nemesis(
        ':f :lose-unfsynced-writes, :value ["n2"]', ':f :lose-unfsynced-writes, :value {"n2" :done}',
        ":f :wipe-out, :value nil", ":f :wipe-out, :value nil",
        ':f :free-node, :value "n3"'))  # never completed: recorded at the end
    assert [(op.f, op.fault and op.fault["nodes"], op.fault and op.fault["lost"]) for op in run.ops[2:]] == [
        ("lose-unfsynced-writes", ["n2"], True), ("wipe-out", ["unnamed"], True), ("free-node", ["n3"], True)]
    assert run.about["nodes"] == ["n2", "n3", "unnamed"]
    assert run.origin["changed"] == {
        "act :lose-unfsynced-writes, counted as one that may lose data": 1,
        "act :wipe-out, counted as one that may lose data": 1,
        "act :free-node, counted as one that may lose data": 1}


def test_the_acts_that_lose_data_can_be_given(tmp_path: Path) -> None:
    """On a lazy file system a kill loses what was not fsynced."""
    run = imported(tmp_path, nemesis(
        ':f :kill, :value ["n1"]', ':f :kill, :value {"n1" :killed}', ":f :shuffle, :value nil",
        ":f :shuffle, :value nil"), loses=["kill"], spares=["shuffle"])
    assert [(op.f, (op.fault or {}).get("lost"), (op.fault or {})["nodes"]) for op in run.ops[2:]] == [
        ("kill", True, ["n1"]), ("shuffle", None, [])]


def test_an_act_without_a_completion_is_recorded_where_the_next_begins(tmp_path: Path) -> None:
    run = imported(tmp_path, nemesis(':f :pause, :value ["n1"]', ":f :kill, :value nil",
                                     ':f :kill, :value {"n1" :killed}'))
    assert [(op.f, op.time) for op in run.ops[2:]] == [("pause", 3000), ("kill", 4000)]


def test_start_of_the_old_partitioner_is_a_cut(tmp_path: Path) -> None:
    run = imported(tmp_path, nemesis(":f :start, :value nil", ':f :start, :value [:isolated {"n1" #{"n2"}}]'))
    assert [op.f for op in run.ops[2:]] == ["cut"]


def test_ops_that_only_inspect_the_cluster_are_left_out_and_counted(tmp_path: Path) -> None:
    run = imported(tmp_path, numbered(
        ":type :invoke, :f :debug-topic-partitions, :value [0]",
        ':type :ok, :f :debug-topic-partitions, :value {:node "n1", :partitions {0 {:hw 5}}}',
        ":type :invoke, :f :crash", ":type :info, :f :crash",
        ":process :checker, :type :info, :f :note", f":process 1, {SEND[0]}, :poll-ms 100, :keys #{{0}}",
        f":process 1, {SEND[1]}, :poll-ms 100"))
    assert [(op.f, op.process) for op in run.ops] == [("crash", 0), ("crash", 0), ("send", 1), ("send", 1)]
    assert run.origin["left_out"] == {
        "debug-topic-partitions (line)": 2, "process checker (line)": 1,
        "field :keys": 1, "field :poll-ms": 2}
    assert run.about["history_lines"] == 4  # nothing is missing that a check needs
    assert [run.line(index)["jepsen"] for index in range(4)] == [2, 3, 5, 6]


def test_an_unknown_op_may_have_sent_so_the_history_counts_as_incomplete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = imported(tmp_path, numbered(*SEND, ":type :invoke, :f :bulk-send, :value [1 2]",
                                      ":type :ok, :f :bulk-send, :value [1 2]"))
    assert (len(run.ops), run.about["history_lines"]) == (2, 4)
    assert "not carried: 2 x op :bulk-send (line)" in (message := capsys.readouterr().err)
    assert "the history counts as incomplete" in message


def test_a_gap_in_the_index_counts_as_missing_ops(tmp_path: Path) -> None:
    text = numbered(*SEND).replace(":index 1,", ":index 8,")
    run = imported(tmp_path, text)
    assert run.about["history_lines"] == 2 + 7
    assert run.origin["left_out"] == {"op missing in the file (by its :index)": 7}
    assert "jepsen" not in run.line(0)
    assert run.line(1)["jepsen"] == 8


def test_an_invalid_index_counts_as_no_missing_op(tmp_path: Path) -> None:
    text = numbered(*SEND).replace(":index 1,", f":index {10**30},").replace(":index 0,", ":index nil,")
    run = imported(tmp_path, text)
    assert run.about["history_lines"] == 2
    assert run.origin["changed"] == {"invalid index": 1}


def test_a_send_of_another_process_makes_the_history_incomplete(tmp_path: Path) -> None:
    run = imported(tmp_path, numbered(
        *SEND, ":process :loader, :type :invoke, :f :send, :value [[:send 0 2]]"))
    assert (len(run.ops), run.about["history_lines"]) == (2, 3)


def test_time_never_falls_and_corrections_are_counted(tmp_path: Path) -> None:
    text = numbered(*SEND, *READ, *SEND).replace(":time 2000", ":time 500").replace(":time 3000", ":time nil")
    run = imported(tmp_path, text)
    assert [op.time for op in run.ops] == [0, 1000, 1000, 1000, 4000, 5000]
    assert run.origin["changed"] == {"falling time: replaced by that of the line before": 1,
                                   "invalid time: replaced by that of the line before": 1}


def test_an_op_that_never_ends_stays_open(tmp_path: Path) -> None:
    run = imported(tmp_path, numbered(SEND[0], f":process 1, {POLL}"))
    assert [(op.type, op.f) for op in run.ops] == [(Type.INVOKE, "send"), (Type.INVOKE, "poll")]
