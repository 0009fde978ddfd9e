"""What a finding says to people, from its numbers: what happened, when, who holds what now."""

from collections.abc import Callable, Mapping
from typing import Any

from checkers import names

Row = Mapping[str, Any]


def text_of(name: str, row: Row) -> str:
    """One paragraph about one finding."""
    return _TEXTS[name](row)


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
    }
    return f"{acked}, but {ends[row['how']]}."


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
    names.STUCK: lambda row: (
        f"{row['timeout_s']} s after mending, with every node up, partition {row['partition']} still had "
        f"{row['how']}."
    ),
}
