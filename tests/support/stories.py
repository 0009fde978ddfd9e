"""The saved runs of histories/golden as code: `python tests/support/stories.py OUT` writes them.

Rules kept here: a story is a function that takes nothing and returns a RunFolder, small enough to be read
line by line; its docstring is the story's sentence in expected.json, which also has what a judge must find,
and was read before it was saved.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import damages
import damages_clients
import damages_losses
import twin

from histories import NODES, Life, Line, RunFolder, checksum, freeze, run_json, starts

STORIES: dict[str, Callable[[], RunFolder]] = {}


def story(make: Callable[[], RunFolder]) -> Callable[[], RunFolder]:
    STORIES[make.__name__.replace("_", "-")] = make
    return make


# -- the steps of stories -----------------------------------------------------------------------------------

def begin(partitions: int = 1) -> Life:
    life = Life(Random(7), partitions)
    for log in life.logs.values():
        log.leader = "n1"
    return life


def send(life: Life, process: int, *values: int, key: int = 0, fate: str = "ok", logged: bool = True) -> None:
    """One op with its answer; unless `logged` is false, its values are appended to every log."""
    sends = [{"partition": key, "value": value} for value in values]
    life.record(process, "invoke", "send", sends=sends)
    offsets = [life.append(key, value) for value in values] if logged else []
    if fate == "ok":
        sends = [{**one, "offset": offset} for one, offset in zip(sends, offsets, strict=True)]
    life.record(process, fate, "send", sends=sends, **({} if fate == "ok" else {"error": "TIMEOUT"}))
    life.next_value = max(life.next_value, max(values) + 1)


def kill(life: Life, node: str, *, then: str) -> None:
    """Kills the node; partitions that it led get another leader in the next epoch; the node comes back."""
    life.record(-1, "info", "kill", fault={"nodes": [node], "moment": {"at": "time", "time": life.time}})
    for key, log in life.logs.items():
        if log.leader == node:
            log.epoch += 1
            log.leader = then
            log.boundaries.append([log.epoch, len(log.entries)])
            life.trace.append({"time": life.time, "node": "c", "seq": len(life.trace), "event": "elect",
                               "partition": key, "leader": then, "epoch": log.epoch,
                               "isr": [other for other in NODES if other != node],
                               "partition_epoch": log.epoch, "clean": True})
    life.record(-1, "info", "start", fault={"nodes": [node]})


def end(life: Life, *, settled: bool = True, traced: bool = False) -> RunFolder:
    """Probes, final reads and the freeze; if not settled, only the freeze."""
    if settled:
        life.settle()
    folder = RunFolder(run=run_json(life, settled=settled), lines=life.lines, rows=[],
                       dumps={node: [] for node in NODES}, trace=starts() + life.trace if traced else None)
    for key, log in sorted(life.logs.items()):
        freeze(folder, Random(1), key, log, settled=settled)
    return folder


def replace_value(folder: RunFolder, offset: int, value: int, nodes: tuple[str, ...] = NODES) -> None:
    damages.rewrite(folder, 0, offset, nodes, value=value, crc=checksum(0, value))


# -- the stories --------------------------------------------------------------------------------------------

@story
def two_partitions_two_elections() -> RunFolder:
    """Nothing planted: two partitions, two leaders killed in turn, one send that failed and one of unknown
    outcome."""
    life = begin(partitions=2)
    send(life, 0, 1, 2)
    send(life, 1, 3, key=1)
    kill(life, "n1", then="n3")
    send(life, 0, 4, fate="fail", logged=False)
    send(life, 1, 5, key=1, fate="info")
    kill(life, "n3", then="n2")
    send(life, 0, 6)
    return end(life, traced=True)


@story
def a_kill_loses_the_tail() -> RunFolder:
    """Two kills, clean elections, and the last acked record is on no replica; no read had returned it."""
    life = begin()
    send(life, 0, 1)
    send(life, 0, 2)
    kill(life, "n1", then="n2")
    folder = end(life)
    for node in NODES:
        damages.shorten(folder, node, 0)
    damages.unread(folder, 3)
    return folder


@story
def an_offset_is_given_twice() -> RunFolder:
    """Value 2 was acked and read at offset 1; a new leader gave that offset to value 3 and acked it too."""
    life = begin()
    send(life, 0, 1)
    life.record(1, "invoke", "assign", partitions=[0])
    life.record(1, "ok", "assign", partitions=[0])
    life.record(0, "invoke", "send", sends=[{"partition": 0, "value": 2}])
    life.record(0, "ok", "send", sends=[{"partition": 0, "value": 2, "offset": 1}])
    life.record(1, "invoke", "poll")
    life.record(1, "ok", "poll", reads=[{"partition": 0, "offset": 0, "value": 1},
                                        {"partition": 0, "offset": 1, "value": 2}])
    kill(life, "n1", then="n2")
    send(life, 2, 3)
    return end(life)


@story
def the_last_in_the_isr_loses_power() -> RunFolder:
    """Only n1 was left in the ISR when it lost power; the trace shows its election afterwards: permitted."""
    life = begin()
    send(life, 0, 1)
    send(life, 0, 2)
    folder = end(life, traced=True)
    for node in NODES:
        damages.shorten(folder, node, 0)
    damages.unread(folder, 3)
    damages_losses.cut_power(folder, ("n1",))
    damages_losses.elected(folder, 0, ("n1",))
    return folder


@story
def a_struck_node_leads_although_others_have_it() -> RunFolder:
    """n1 lost power and was elected while n2, unstruck, was in the ISR: within the budget, and a bug."""
    folder = the_last_in_the_isr_loses_power()
    assert folder.trace is not None
    folder.trace[-1]["isr"] = ["n1", "n2"]
    return folder


@story
def elected_from_outside_the_isr() -> RunFolder:
    """n1 was elected uncleanly, though the setting is off and nobody had requested it, and an acked record is
    gone: the election is a bug, and permits nothing."""
    folder = without_the_last(unclean=False)
    damages_losses.elected(folder, 0, ("n1",), clean=False)
    return folder


@story
def elected_from_outside_the_isr_as_asked() -> RunFolder:
    """The same unclean election, which the nemesis had requested: what it loses is permitted."""
    folder = without_the_last(unclean=True)
    damages_losses.elected(folder, 0, ("n1",), clean=False)
    return folder


def without_the_last(*, unclean: bool) -> RunFolder:
    """The acked value 3 is on no replica; at the end an election was requested, a preferred or an unclean
    one."""
    life = begin()
    send(life, 0, 1)
    send(life, 0, 2)
    folder = end(life, traced=True)
    for node in NODES:
        damages.shorten(folder, node, 0)
    damages.unread(folder, 3)
    began = folder.lines[-1]["time"] + 1
    folder.add(-1, "info", "elect", fault={
        "nodes": [], "partitions": [0], "unclean": unclean, "began": began})
    return folder


@story
def a_broker_ends_by_itself() -> RunFolder:
    """n2 broke an invariant of its own, and its process ended; nothing was lost."""
    life = begin()
    send(life, 0, 1)
    folder = end(life)
    folder.run |= {"died": ["n2"], "died_words": {
        "n2": "it ended with exit code 1\nbroker n2: step\nAssertionError: HW 7 above LEO 6"}}
    return folder


@story
def one_power_cut_and_no_trace() -> RunFolder:
    """One of three lost power and an acked record is gone: without a trace it is unknown whether that was the
    reason."""
    folder = the_last_in_the_isr_loses_power()
    folder.trace = None
    return folder


@story
def acked_by_the_leader_alone() -> RunFolder:
    """acks=1: the lost record is permitted, but value 3 had been read and so was committed, and its loss is a
    bug."""
    folder = a_kill_loses_the_tail()
    folder.run["guarantees"]["acks"] = "1"
    process = folder.fresh_process()
    folder.add(process, "invoke", "poll")
    folder.add(process, "ok", "poll", reads=[{"partition": 0, "offset": 2, "value": 3}])
    return folder


@story
def the_logs_part_below_the_high_watermark() -> RunFolder:
    """n3 has other bytes at offset 1 under the same epoch, and two epochs where the others have one."""
    life = begin()
    send(life, 0, 1)
    send(life, 0, 2)
    send(life, 0, 3)
    folder = end(life)
    damages.rewrite(folder, 0, 1, ("n3",), crc=1)
    damages.rewrite(folder, 0, 3, ("n3",), epoch=1)
    return folder


@story
def a_dead_replica_keeps_an_old_tail() -> RunFolder:
    """Near miss, not settled: n3 is down and has, above its high watermark, records that epoch 0 wrote
    there."""
    life = begin()
    send(life, 0, 1)
    kill(life, "n1", then="n2")
    send(life, 1, 2)
    folder = end(life, settled=False)
    isr = ["n1", "n2"]
    folder.run["leaders"]["0"]["isr"] = isr
    log = [dict(entry) for entry in folder.log("n2", 0)]
    folder.set_log("n1", 0, log)
    folder.set_log("n3", 0, [log[0], {**log[1], "epoch": 0, "value": 1000, "crc": 9}])
    for node in NODES:
        row = folder.row(node, 0)
        row.pop("running", None)
        row |= {"leader": "n2", "leo": 2, "hw": 2, "isr": isr, "epochs": [[0, 0], [1, 1]], "clean": True}
    down = {"running": False, "leader": None, "hw": 1, "clean": False, "epochs": [[0, 0]]}
    folder.row("n3", 0).update(down)
    process = folder.fresh_process()
    folder.add(process, "invoke", "send", sends=[{"partition": 0, "value": 1000}])
    return folder


@story
def a_log_with_a_hole() -> RunFolder:
    """n2's log lacks offset 1, has offset 2 twice, and a checksum does not match."""
    life = begin()
    send(life, 0, 1, 2, 3, 4)
    folder = end(life)
    log = folder.log("n2", 0)
    folder.set_log("n2", 0, [log[0], log[2], log[2], {**log[3], "crc_ok": False}, log[4]])
    return folder


@story
def a_cache_that_forgot_an_epoch() -> RunFolder:
    """After a leader change n3's epoch cache knows epoch 0 only; the logs are equal."""
    life = begin()
    send(life, 0, 1)
    kill(life, "n1", then="n2")
    send(life, 1, 2)
    folder = end(life)
    folder.row("n3", 0)["epochs"] = [[0, 0]]
    return folder


@story
def a_member_is_behind() -> RunFolder:
    """Settled, and n3, in the ISR, lacks the last two committed records."""
    life = begin()
    send(life, 0, 1, 2, 3)
    folder = end(life)
    damages.shorten(folder, "n3", 0, 2)
    return folder


@story
def nobody_ever_read_it() -> RunFolder:
    """The leader has the acked value 3 below its high watermark, and the final reader stopped before it."""
    life = begin()
    send(life, 0, 1, 2)
    folder = end(life)
    damages.unread(folder, 3)
    return folder


@story
def from_nowhere_and_from_the_dead() -> RunFolder:
    """The logs end with a value that was never sent and one whose send failed for certain."""
    life = begin()
    send(life, 0, 1)
    folder = end(life)
    damages.extend(folder, 0, 4711)
    damages.extend(folder, 0, damages.failed_or_info(folder, 0, "fail"))
    return folder


@story
def a_retry_is_appended_twice() -> RunFolder:
    """retries=3 without idempotence: value 1 is at two offsets, which is permitted."""
    life = begin()
    send(life, 0, 1)
    send(life, 0, 2)
    life.append(0, 1)
    folder = end(life)
    folder.run["guarantees"]["retries"] = 3
    return folder


@story
def offsets_against_time() -> RunFolder:
    """Value 2 was sent after value 1 was acked, by the same process, and has the lower offset."""
    life = begin()
    send(life, 0, 1)
    send(life, 0, 2)
    folder = end(life)
    replace_value(folder, 0, 2)
    replace_value(folder, 1, 1)
    for line in folder.lines:
        for one in [*(line.get("sends") or []), *(line.get("reads") or [])]:
            if one["value"] in (1, 2) and "offset" in one:
                one["offset"] = 1 - one["offset"]
        if line.get("reads"):
            line["reads"].sort(key=lambda read: read["offset"])
    return folder


@story
def a_consumer_jumps_and_falls() -> RunFolder:
    """One consumer skips offset 1, another gets offset 2 twice in one poll, a third gets a lower end offset
    than before."""
    life = begin()
    send(life, 0, 1, 2, 3)
    folder = end(life)
    reads = [{"partition": 0, "offset": offset, "value": offset + 1} for offset in range(3)]
    process = damages_clients.last_reader(folder, 0, [reads[0]])
    folder.add(process, "invoke", "poll")
    folder.add(process, "ok", "poll", reads=[reads[2]])
    damages_clients.last_reader(folder, 0, [reads[2], reads[2]])
    process = folder.fresh_process()
    for offset in (4, 3):
        folder.add(process, "invoke", "list_offsets")
        folder.add(process, "ok", "list_offsets", offsets=[{"partition": 0, "offset": offset}])
    return folder


@story
def no_ack_after_mending() -> RunFolder:
    """Every node is up again, and no probe was acked in time: stuck."""
    life = begin()
    send(life, 0, 1)
    kill(life, "n1", then="n2")
    folder = end(life, settled=False)
    folder.run["settle"] |= {"no_ack": [0], "why": "no probe of partition 0 was acked in 30 s"}
    for node in NODES:
        folder.row(node, 0).pop("running", None)
    return folder


@story
def a_garbled_line() -> RunFolder:
    """Line 3 of the history is no JSON: much is unknown, and the lost record is still reported."""
    folder = a_kill_loses_the_tail()
    lines = [json.dumps(line, separators=(",", ":")) for line in folder.lines]
    folder.files["history.jsonl"] = "\n".join([*lines[:2], lines[2][:40], *lines[3:], ""]).encode()
    return folder


@story
def the_harness_was_killed() -> RunFolder:
    """The harness died in the middle: half a line at the end, no dumps, run.json as it was at the start."""
    life = begin()
    send(life, 0, 1)
    send(life, 0, 2)
    folder = end(life)
    for name in ("settled", "settle", "leaders", "final_reads", "history_lines", "ended"):
        del folder.run[name]
    lines = [json.dumps(line, separators=(",", ":")) for line in folder.lines[:4]]
    folder.files = {"history.jsonl": "\n".join([*lines[:3], lines[3][:50]]).encode(), "replicas.jsonl": None,
                    **{f"logs/{node}.jsonl": None for node in NODES}}
    return folder


def transaction(life: Life, process: int, kind: str, key: int, value: int, offset: int | None = None,
                reads: list[Line] | None = None) -> None:
    """One line of a transaction that sends one value."""
    sent = {"partition": key, "value": value} | ({} if offset is None else {"offset": offset})
    life.record(process, kind, "txn", sends=[sent], **({} if reads is None else {"reads": reads}))
    life.next_value = max(life.next_value, value + 1)


@story
def two_transactions_read_each_other() -> RunFolder:
    """Each of two open transactions read what the other one sent: neither of them can be the first."""
    life = begin(2)
    transaction(life, 0, "invoke", 0, 1)
    transaction(life, 1, "invoke", 1, 2)
    first, second = ({"partition": key, "offset": life.append(key, value), "value": value}
                     for key, value in ((0, 1), (1, 2)))
    transaction(life, 0, "ok", 0, 1, first["offset"], reads=[second])
    transaction(life, 1, "ok", 1, 2, second["offset"], reads=[first])
    return end(life)


@story
def a_transaction_reads_its_own_write() -> RunFolder:
    """Before it was committed, the transaction of value 2 read it."""
    life = begin()
    send(life, 0, 1)
    transaction(life, 1, "invoke", 0, 2)
    record = {"partition": 0, "offset": life.append(0, 2), "value": 2}
    transaction(life, 1, "ok", 0, 2, record["offset"], reads=[record])
    return end(life)


def main(out: Path) -> None:
    for name, make in STORIES.items():
        folder = make().write(out / name)
        expected = twin.judge(folder)
        del expected["exact"]
        saved = json.dumps({"story": " ".join(str(make.__doc__).split()), **expected}, indent=1)
        (folder / "expected.json").write_text(saved + "\n")
        found = [f"{one['name']}({one['count']} {one['class']})" for one in expected["findings"]]
        print(f"{name}: {expected['valid']} {' '.join(found)} unknown={','.join(expected['unknown'])}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
