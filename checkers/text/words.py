"""What a finding says to people, from its numbers: what happened, when, who holds what now."""

from collections.abc import Callable, Mapping
from typing import Any

from checkers.laws import finding_names as names
from checkers.text import cycle_words

Row = Mapping[str, Any]
LAST_LINES, LAST_CHARS = 3, 200  # of what a broker said before it ended, and of each line


def text_of(name: str, row: Row) -> str:
    """One paragraph about one finding."""
    return _TEXTS[name](row) if name in _TEXTS else of_registered(name, row)


def of_registered(name: str, row: Row) -> str:
    """What another distribution's check found, by the columns it gave."""
    known = ("partition", "offset", "value", "process")
    where = " ".join(f"{key} {row[key]}" for key in known if row.get(key) is not None)
    nodes = f" on {', '.join(row['nodes'])}" if row.get("nodes") else ""
    how = f": {row['how']}" if row.get("how") else ""
    return f"{name}: {where or 'the run'}{nodes}{how}{lines(row)}."


def place(row: Row) -> str:
    return f"partition {row['partition']} offset {row['offset']}"


def held_by(row: Row) -> str:
    nodes = row.get("nodes") or []
    return f"held now by {', '.join(nodes)}" if nodes else "held by no replica"


def lines(row: Row) -> str:
    ops = row.get("ops") or []
    return f" (index {', '.join(map(str, ops))})" if ops else ""


def lost_write(row: Row) -> str:
    value, ops = row["value"], row.get("ops") or []
    acked = f"The send of {value} to partition {row['partition']} was acked"
    acked += f" at offset {row['offset']}" if row["offset"] is not None else ""
    acked += f" (index {ops[-1]})" if ops else ""
    ends = {
        "moved": f"the leader's final log holds it at offset {row['seen']} instead",
        "overwritten": "the leader's final log holds "
        + (f"{row['seen']}" if row["seen"] is not None else "a record that is not ours")
        + f" there; it is {held_by(row)}",
        "orphaned": f"the leader's final log does not hold it; it is {held_by(row)}",
        "gone": "no replica holds it",
        "unread": f"the reads that went on to offset {row['seen']} did not return it"
        + (f"; it is {held_by(row)}" if row.get("nodes") else ""),
    }
    return f"{acked}, but {ends[row['how']]}."


def broker_died(row: Row) -> str:
    """With how it ended (the first line) and the end of what it said, where run.json has it: a line, not a
    page."""
    told = row.get("last_words")
    said = [line.strip() for line in told.splitlines() if line.strip()] if isinstance(told, str) else []
    said = said if len(said) <= LAST_LINES else [said[0], "...", *said[1 - LAST_LINES :]]
    words = " | ".join(line[-LAST_CHARS:] for line in said)
    return (
        f"The process of {row['nodes'][0]} ended by itself after it had been ready, and no fault in force "
        "explains it" + (f"; its last words: {words}" if words else ".")
    )


def diverged(row: Row) -> str:
    return f"At {place(row)} {', '.join(row['nodes'])} and the others hold different records."


def epoch_lineage(row: Row) -> str:
    nodes = ", ".join(row["nodes"])
    return {
        "two records": f"Epoch {row['seen']} names two records at {place(row)} ({nodes}).",
        "falls": f"In the log of {nodes} the epoch falls below {row['seen']} at {place(row)}.",
        "cache": f"The leader-epoch cache of {nodes} says epoch {row['seen']} of {place(row)}, the record "
        "says another.",
        "cache above LEO": f"The leader-epoch cache of {nodes} starts epoch {row['seen']} at {place(row)}, "
        "above LEO.",
    }[row["how"]]


def malformed(row: Row) -> str:
    nodes = ", ".join(row["nodes"])
    return {
        "gap": f"The log of {nodes} jumps from offset {row['seen']} to {row['offset']} in partition "
        f"{row['partition']}.",
        "doubled": f"The log of {nodes} has {place(row)} twice.",
        "disordered": f"The log of {nodes} has offset {row['offset']} after {row['seen']} "
        f"in partition {row['partition']}.",
        "crc": f"The bytes that {nodes} keeps at {place(row)} do not fit their CRC.",
        "hw": f"The HW of {nodes} is {row['seen']}, above its LEO {row['offset']}, in partition "
        f"{row['partition']}.",
        "leo": f"{nodes} says LEO {row['offset']}, its log ends "
        + (f"at {row['seen']}" if row["seen"] is not None else "before it begins")
        + f", in partition {row['partition']}.",
        "log_start": f"{nodes} says log start {row['offset']}, its log begins at {row['seen']}, "
        f"in partition {row['partition']}.",
    }[row["how"]]


def told_by(row: Row) -> str:
    return f" ({row['node']}, seq {row['seq']} of its trace)"


def record(row: Row) -> str:
    of_epoch = "" if row["epoch"] is None else f" of epoch {row['epoch']}"
    return f"the committed record{of_epoch} at {place(row)}"


def who(row: Row) -> str:
    return ", ".join(row["nodes"] or [])


def candidate_incomplete(row: Row) -> str:
    how = (
        f"holds one of epoch {row['seen']} instead"
        if row["how"] == "other"
        else f"ends below the HW of {row['seen']} that a leader has had"
    )
    return f"{who(row)}, a candidate for leadership, lacks {record(row)}: its log {how}{told_by(row)}."


def ack_rule(row: Row) -> str:
    why = {
        "hw": f"while the HW was {row['seen']}",
        "isr": f"with an ISR of {who(row)}, fewer than the {row['seen']} of min.insync.replicas",
        "member": f"before {who(row)} of the ISR had appended the record",
    }[row["how"]]
    return f"{row['node']} acked {place(row)} with acks=all {why}{told_by(row)}."


def unsafe_isr(row: Row) -> str:
    key = row["partition"]
    what = {
        "behind": f"took in {who(row)}, whose LEO was {row['offset']}, below {row['seen']}: the HW, or the "
        "start of the leader's epoch",
        "leader": f"does not hold its leader {who(row)}",
        "order": f"came with partition epoch {row['seen']}, which is not above the one before",
        "smaller": f"was counted by its leader without {who(row)}, which the controller had in it",
    }[row["how"]]
    return f"The ISR of partition {key} {what}{told_by(row)}."


_TEXTS: dict[str, Callable[[Row], str]] = {
    names.LOST_WRITE: lost_write,
    names.DIVERGED: diverged,
    names.EPOCH_LINEAGE: epoch_lineage,
    names.MALFORMED_LOG: malformed,
    names.UNDER_REPLICATED: lambda row: (
        f"{', '.join(row['nodes'])}, in the ISR, lack{'s' if len(row['nodes']) == 1 else ''} the committed "
        "record at "
        f"{place(row)}."
    ),
    names.UNSEEN: lambda row: (
        f"The acked {row['value']} stands at {place(row)} of the leader's log, below the HW, and no final "
        "read "
        f"returned it{lines(row)}."
    ),
    names.INCONSISTENT_OFFSETS: lambda row: (
        f"Clients saw both {row['value']} and {row['seen']} at {place(row)}{lines(row)}."
    ),
    names.DUPLICATE: lambda row: (
        f"The value {row['value']} is at offsets {row['offset']} and {row['seen']} of partition "
        f"{row['partition']}"
        f"{lines(row)}."
    ),
    names.PHANTOM: lambda row: (
        f"The value {row['value']} was never sent to partition {row['partition']}, yet it "
        + (f"was read{lines(row)}" if row.get("ops") else f"is {held_by(row)}")
        + "."
    ),
    names.G1A: lambda row: (
        f"The send of {row['value']} failed for certain, yet it was read or stands committed at {place(row)}"
        f"{lines(row)}."
    ),
    names.SAW_THEN_LOST: lambda row: (
        f"{row['value']} was read at {place(row)}{lines(row)}; the leader's final log does not hold it there."
    ),
    names.NONMONOTONIC_SEND: lambda row: (
        f"Process {row['process']} was acked offset {row['offset']} of partition {row['partition']} after "
        "offset "
        f"{row['seen']}{lines(row)}."
    ),
    names.INT_NONMONOTONIC_SEND: lambda row: (
        f"Inside one op, offset {row['offset']} of partition {row['partition']} came after offset "
        f"{row['seen']}"
        f"{lines(row)}."
    ),
    names.REALTIME_ORDER: lambda row: (
        f"The send of {row['value']} began after offset {row['seen']} of partition {row['partition']} had "
        "been acked, "
        f"and got offset {row['offset']}{lines(row)}."
    ),
    names.NONMONOTONIC_POLL: lambda row: (
        f"Process {row['process']} read offset {row['offset']} of partition {row['partition']} after offset "
        f"{row['seen']}{lines(row)}."
    ),
    names.INT_NONMONOTONIC_POLL: lambda row: (
        f"Inside one poll, offset {row['offset']} of partition {row['partition']} came after offset "
        f"{row['seen']}"
        f"{lines(row)}."
    ),
    names.POLL_SKIP: lambda row: (
        f"Process {row['process']} read offset {row['offset']} of partition {row['partition']} next after "
        "offset "
        f"{row['seen']} and passed over records{lines(row)}."
    ),
    names.INT_POLL_SKIP: lambda row: (
        f"Inside one poll, offset {row['offset']} of partition {row['partition']} came next after offset "
        f"{row['seen']}: records were passed over{lines(row)}."
    ),
    names.END_OFFSET_REGRESSED: lambda row: (
        f"Process {row['process']} was told end offset {row['offset']} of partition {row['partition']}, "
        "after it had "
        f"seen that it is at least {row['seen']}{lines(row)}."
    ),
    names.BROKER_DIED: broker_died,
    names.STUCK: lambda row: (
        f"{row['timeout_s']} s after mending, with every node up, partition {row['partition']} still had "
        f"{row['how']}."
    ),
    names.HW_REGRESSED: lambda row: (
        f"The HW of {who(row)}, leading partition {row['partition']}, fell from {row['seen']} to "
        f"{row['offset']} in one epoch{told_by(row)}."
    ),
    names.EPOCH_REGRESSED: lambda row: (
        f"{who(row)} took a role in epoch {row['how']} of partition {row['partition']} after one in epoch "
        f"{row['seen']}{told_by(row)}."
    ),
    names.UNCLEAN_ELECTION: lambda row: (
        f"{', '.join(row['nodes']) or 'Nobody'} was elected leader of partition {row['partition']} in epoch "
        f"{row['seen']} from outside the ISR{told_by(row)}, though unclean.leader.election.enable is off and "
        "nothing had asked for an unclean election."
    ),
    names.TWO_LEADERS: lambda row: (
        f"{who(row)} both acted as leader of partition {row['partition']} in epoch {row['seen']}"
        f"{told_by(row)}."
    ),
    names.ACK_RULE: ack_rule,
    names.UNSAFE_ISR: unsafe_isr,
    names.LEADER_INCOMPLETE: lambda row: (
        f"{who(row)} became the leader without {record(row)}: a leader's HW had come to {row['seen']}"
        f"{told_by(row)}."
    ),
    names.CANDIDATE_INCOMPLETE: candidate_incomplete,
    names.UNSAFE_TRUNCATION: lambda row: (
        f"{who(row)} truncated its log to {row['seen']} and cut {record(row)}, which it held{told_by(row)}."
    ),
    names.PRECOMMITTED_READ: cycle_words.precommitted,
    **dict.fromkeys(names.CYCLES, cycle_words.cycle),
}
