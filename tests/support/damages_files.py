"""Damages of the files: missing, torn, garbled, mistyped, cut short; and changes that are no damage.

The rules are those of damages.py. Each names the findings that must be listed under unknown; none may count
as a bug of the cluster. Everything else in these folders is settled and healthy.
"""

import json
from random import Random

from damages import NOTHING, Expect, any_ack, extend, follower, near_miss, some_partition, spoilt_file

from histories import NODES, Line, RunFolder

LOGS = frozenset({"diverged", "under-replicated", "epoch-lineage", "malformed-log"})
FROM_LEADER = frozenset({"lost-write", "unseen", "saw-then-lost"})
HISTORY = frozenset({
    "lost-write", "unseen", "inconsistent-offsets", "phantom", "G1a", "saw-then-lost", "duplicate",
    "precommitted-read", "G0", "G0-realtime", "G1c", "G1c-realtime"})
ORDER = frozenset({"realtime-order", "nonmonotonic-send", "nonmonotonic-poll", "poll-skip", "G0-process",
                   "G1c-process"})


def cannot_tell(*names: frozenset[str]) -> Expect:
    return Expect(unknown=frozenset().union(*names), valid="unknown")


def text(lines: list[Line]) -> list[str]:
    return [json.dumps(line) for line in lines]


def replace(folder: RunFolder, name: str, lines: list[str], *, end: str = "\n") -> None:
    folder.files[name] = ("\n".join(lines) + end).encode()


# -- dumps and rows -----------------------------------------------------------------------------------------

def spoil_dump(folder: RunFolder, random: Random, node: str) -> None:
    """Deletes a dump, cuts its last line in half, or gives it a line that is no entry."""
    lines = text(folder.dumps[node])
    name, how = f"logs/{node}.jsonl", random.choice(("missing", "torn", "garbled", "mistyped"))
    if how == "missing" or not lines:
        folder.files[name] = None
    elif how == "torn":
        replace(folder, name, [*lines[:-1], lines[-1][:-9]], end="")
    else:
        spot = random.randrange(len(lines))
        bad = "{nonsense" if how == "garbled" else json.dumps({**folder.dumps[node][spot], "offset": "5"})
        replace(folder, name, [*lines[:spot], bad, *lines[spot + 1:]])


@spoilt_file
def a_follower_dump(folder: RunFolder, random: Random) -> Expect | None:
    """The dump of a node that leads nothing."""
    idle = sorted(set(NODES) - {folder.leader(int(key)) for key in folder.run["partitions"]})
    if not idle:
        return None
    spoil_dump(folder, random, idle[0])
    return cannot_tell(LOGS)


@spoilt_file
def a_leader_dump(folder: RunFolder, random: Random) -> Expect | None:
    """The dump of a leader. Final reads, if there are any, still show losses."""
    spoil_dump(folder, random, folder.leader(some_partition(folder, random)))
    return cannot_tell(LOGS, FROM_LEADER - ({"lost-write"} if folder.run["settled"] else set()))


@spoilt_file
def a_row(folder: RunFolder, random: Random) -> Expect | None:
    """A follower's row is missing, or is no row."""
    partition = some_partition(folder, random)
    row = folder.row(follower(folder, random, partition), partition)
    if random.random() < 0.5:
        folder.rows.remove(row)
    else:
        row["leo"] = "six"
    return cannot_tell(LOGS)


@spoilt_file
def all_rows(folder: RunFolder, random: Random) -> Expect | None:
    """replicas.jsonl is missing."""
    folder.files["replicas.jsonl"] = None
    return cannot_tell(LOGS)


# -- the history --------------------------------------------------------------------------------------------

@spoilt_file
def a_line_that_is_no_json(folder: RunFolder, random: Random) -> Expect | None:
    """A line in the middle of the history is garbled."""
    lines = text(folder.lines)
    lines[random.randrange(len(lines))] = random.choice(('{"index":3,', "nonsense", "[1]", "17"))
    replace(folder, "history.jsonl", lines)
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def a_mistyped_field(folder: RunFolder, random: Random) -> Expect | None:
    """One field of one line is of another type, or missing, or of a value that cannot be."""
    line = random.choice(folder.lines)
    name = random.choice(("index", "time", "process", "type", "f"))
    bad = random.choice(("seven", None, [1], {"a": 1}))
    if bad is None:
        del line[name]
    else:
        line[name] = bad
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def a_mistyped_send(folder: RunFolder, random: Random) -> Expect | None:
    """A micro-send's value or offset is text, or its partition is missing."""
    line = random.choice([line for line in folder.lines if line.get("sends")])
    name = random.choice(("value", "partition", "offset"))
    line["sends"][0] = {**line["sends"][0], name: "5"} if random.random() < 0.5 or name == "offset" else {
        key: field for key, field in line["sends"][0].items() if key != name}
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def a_lost_line(folder: RunFolder, random: Random) -> Expect | None:
    """One line is missing: the index has a gap."""
    folder.run["history_lines"] = len(folder.lines)
    del folder.lines[random.randrange(len(folder.lines))]
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def a_history_cut_short(folder: RunFolder, random: Random) -> Expect | None:
    """The end of the history is missing; only history_lines shows it."""
    folder.run["history_lines"] = len(folder.lines)
    del folder.lines[-random.randrange(1, 4):]
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def no_history(folder: RunFolder, random: Random) -> Expect | None:
    """history.jsonl is missing."""
    folder.run["history_lines"] = len(folder.lines)
    folder.files["history.jsonl"] = None
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def an_op_completes_twice(folder: RunFolder, random: Random) -> Expect | None:
    """An ok is in the history twice, of a process that waits for no other op."""
    last = {line["process"]: line["type"] for line in folder.lines}
    line = random.choice([line for line in folder.lines
                          if line["type"] == "ok" and last[line["process"]] != "invoke"])
    fields = {key: line[key] for key in ("sends", "reads", "partitions", "offsets") if key in line}
    folder.add(line["process"], "ok", line["f"], **fields)
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def a_line_is_there_twice(folder: RunFolder, random: Random) -> Expect | None:
    """A line is in the file twice, with its index."""
    spot = random.randrange(len(folder.lines))
    folder.lines.insert(spot, dict(folder.lines[spot]))
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def a_completion_of_nothing(folder: RunFolder, random: Random) -> Expect | None:
    """A poll has a completion and no invocation."""
    folder.add(folder.fresh_process(), "ok", "poll", reads=[])
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def an_ack_of_nothing(folder: RunFolder, random: Random) -> Expect | None:
    """A send has an ok and no invocation, and its record is in every log: it is not called a phantom."""
    partition = some_partition(folder, random)
    value = folder.fresh_value()
    send = {"partition": partition, "value": value, "offset": extend(folder, partition, value)}
    folder.add(folder.fresh_process(), "ok", "send", sends=[send])
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def two_fates(folder: RunFolder, random: Random) -> Expect | None:
    """A send that was answered ok is also answered fail: the first answer counts."""
    line = random.choice([line for line in folder.lines if line["type"] == "ok" and line["f"] == "send"])
    folder.add(line["process"], "fail", "send", sends=line["sends"], error="TIMEOUT")
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def another_answer(folder: RunFolder, random: Random) -> Expect | None:
    """A completion names another value than its invocation."""
    process = folder.fresh_process()
    send = {"partition": some_partition(folder, random), "value": folder.fresh_value()}
    folder.add(process, "invoke", "send", sends=[send])
    folder.add(process, "info", "send", sends=[{**send, "value": send["value"] + 1}])
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def time_falls(folder: RunFolder, random: Random) -> Expect | None:
    """A line is older than the one before it."""
    folder.lines[-1]["time"] = 0
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def values_sent_twice(folder: RunFolder, random: Random) -> Expect | None:
    """A value is sent a second time, by another process."""
    ack = any_ack(folder, random)
    if ack is None:
        return None
    process = folder.fresh_process()
    send = {"partition": ack[0], "value": ack[2]}
    folder.add(process, "invoke", "send", sends=[send])
    folder.add(process, random.choice(("info", "fail")), "send", sends=[send])
    return cannot_tell(HISTORY, ORDER)


@spoilt_file
def two_ops_at_once(folder: RunFolder, random: Random) -> Expect | None:
    """A process invokes an op while another of its ops is open."""
    process = folder.fresh_process()
    for kind in ("invoke", "invoke", "ok", "ok"):
        folder.add(process, kind, "poll", **({"reads": []} if kind == "ok" else {}))
    return cannot_tell(ORDER)


@spoilt_file
def an_op_after_info(folder: RunFolder, random: Random) -> Expect | None:
    """A process invokes an op after one that ended as info."""
    process = folder.fresh_process()
    for kind in ("invoke", "info", "invoke", "ok"):
        folder.add(process, kind, "poll", **({"reads": []} if kind == "ok" else {}))
    return cannot_tell(ORDER)


@near_miss
def a_torn_last_line(folder: RunFolder, random: Random) -> Expect | None:
    """The last line of the history is half a line, and history_lines does not count it."""
    folder.run["history_lines"] = len(folder.lines)
    line = {"index": len(folder.lines), "time": 10**12, "process": 5, "type": "invoke", "f": "poll"}
    extra = json.dumps(line)
    replace(folder, "history.jsonl", [*text(folder.lines), extra[:random.randrange(1, len(extra))]], end="")
    return NOTHING


@near_miss
def blank_lines_and_unknown_fields(folder: RunFolder, random: Random) -> Expect | None:
    """A reader ignores what it does not know."""
    lines = [json.dumps({**line, "comment": {"why": [1]}}) for line in folder.lines]
    for _ in range(3):
        lines.insert(random.randrange(len(lines)), random.choice(("", "   ")))
    replace(folder, "history.jsonl", lines)
    folder.run["history_lines"] = len(folder.lines)
    folder.run["unheard_of"] = {"x": 1}
    folder.rows = [{**row, "unheard_of": 1} for row in folder.rows]
    return NOTHING


# -- run.json -----------------------------------------------------------------------------------------------

@spoilt_file
def no_run_json(folder: RunFolder, random: Random) -> Expect | None:
    """run.json is missing, is no JSON, or is of another format."""
    other = json.dumps({**folder.run, "format": 2}).encode()
    folder.files["run.json"] = random.choice((None, b'{"format":1', other))
    return cannot_tell(LOGS, HISTORY, ORDER)


@spoilt_file
def the_harness_was_killed(folder: RunFolder, random: Random) -> Expect | None:
    """run.json is the one from the beginning, and nothing was dumped."""
    for name in ("settled", "settle", "leaders", "final_reads", "history_lines", "ended"):
        folder.run.pop(name, None)
    del folder.lines[random.randrange(1, len(folder.lines)):]
    if random.random() < 0.5:
        folder.files |= {"replicas.jsonl": None, **{f"logs/{node}.jsonl": None for node in NODES}}
        return cannot_tell(LOGS, FROM_LEADER, frozenset({"phantom", "poll-skip", "nonmonotonic-poll"}))
    return Expect(unknown=frozenset({"phantom", "poll-skip", "nonmonotonic-poll", "diverged", "unseen"}),
                  may=frozenset(), valid="unknown")


@spoilt_file
def missed_moments(folder: RunFolder, random: Random) -> Expect | None:
    """The moments of the schedule never came."""
    folder.run["missed"] = [0]
    return cannot_tell(frozenset({"unfit"}))


@spoilt_file
def an_unreadable_cache(folder: RunFolder, random: Random) -> Expect | None:
    """The leader-epoch-checkpoint of a running node is torn."""
    folder.row(random.choice(NODES), some_partition(folder, random)).update(epochs_unreadable=True, epochs=[])
    return cannot_tell(frozenset({"epoch-lineage"}))


@spoilt_file
def a_compacted_partition(folder: RunFolder, random: Random) -> Expect | None:
    """Compaction removed records, and nothing shows which."""
    key = some_partition(folder, random)
    folder.run["partitions"][str(key)]["cleanup"] = "compact"
    leader = folder.leader(key)
    for node in NODES:
        log = folder.log(node, key)
        folder.set_log(node, key, log[:1] + log[2:] if node == leader else log)
    return cannot_tell(frozenset({"lost-write", "saw-then-lost", "under-replicated", "epoch-lineage"}))


@spoilt_file
def nothing_acked(folder: RunFolder, random: Random) -> Expect | None:
    """Every send but the probes failed or is open. (A transaction's reads would go with its answer.)"""
    if any(line["f"] == "txn" for line in folder.lines):
        return None
    probers = folder.run["settle"]["processes"]
    folder.lines = [line for line in folder.lines if line["f"] != "send" or line["process"] in probers
                    or line["type"] in ("invoke", "info")]
    for line in folder.lines:
        if line["f"] == "send" and line["process"] not in probers:
            # each op has a process of its own: no process goes on after an info
            line["process"] += 100_000 + 1000 * line["index"]
    folder.lines = [line for line in folder.lines if line["type"] != "info" or line["f"] != "send"]
    for index, line in enumerate(folder.lines):
        line["index"] = index
    return cannot_tell(frozenset({"lost-write", "unseen"}))


@spoilt_file
def no_final_reads(folder: RunFolder, random: Random) -> Expect | None:
    """A partition was not read to the end."""
    folder.run["final_reads"]["partitions"].remove(some_partition(folder, random))
    return cannot_tell(frozenset({"unseen"}))
