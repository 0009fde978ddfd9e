"""Writes a line of the trace as a clause: which node did what and when, and the line's place in the file.
Pure. A line made by another tool may lack any field: what is missing is left out.
"""

from collections.abc import Callable, Mapping

from floodmark.harness.report.model import TraceLine
from floodmark.harness.report.phrases import seconds


def listed(items: tuple[str, ...] | list[str]) -> str:
    """`n1, n2 and n3`."""
    return ", ".join(items[:-1]) + (" and " if len(items) > 1 else "") + items[-1] if items else "nobody"


def clause_of(line: TraceLine) -> str:
    """`at 1.033 s n3 truncated its log from 4 to 3 ("to the high watermark") in epoch 1 (trace.jsonl:60)`."""
    time = line.whole_number("time")
    when = "" if time is None else f"at {seconds(time)} "
    return f"{when}{_WORDS.get(line.event, other)(line)} ({line.place})"


def epoch(line: TraceLine) -> str:
    return f" in epoch {line.fields['epoch']}" if line.whole_number("epoch") is not None else ""


def number(line: TraceLine, name: str) -> str:
    value = line.whole_number(name)
    return "?" if value is None else str(value)


def truncate(line: TraceLine) -> str:
    why = line.fields.get("why")
    quoted = f' ("{why}")' if isinstance(why, str) and why else ""
    ends = f"from {number(line, 'from')} to {number(line, 'to')}"
    return f"{line.node} truncated its log {ends}{quoted}{epoch(line)}"


def become_leader(line: TraceLine) -> str:
    return (f"{line.node} began to lead epoch {number(line, 'epoch')} with LEO {number(line, 'leo')}, "
            f"HW {number(line, 'hw')} and the ISR {listed(line.names('isr'))}")


def become_follower(line: TraceLine) -> str:
    return (f"{line.node} became a follower of {line.name_in('leader')}{epoch(line)}, "
            f"its LEO {number(line, 'leo')}")


def elect(line: TraceLine) -> str:
    leader = line.fields.get("leader")
    chosen = f"chose {leader} to lead epoch {number(line, 'epoch')}" if leader else "left it without a leader"
    cleanly = "an UNCLEAN election" if line.fields.get("clean") is False else "a clean election"
    return f"{line.node} {chosen}, its ISR {listed(line.names('isr'))} ({cleanly})"


def isr(line: TraceLine) -> str:
    if line.whole_number("leo") is not None:
        return f"{line.node} learned that the ISR is {listed(line.names('isr'))}{epoch(line)}"
    return f"{line.node} made the ISR {listed(line.names('isr'))}{epoch(line)}"


def isr_proposed(line: TraceLine) -> str:
    return f"{line.node} proposed the ISR {listed(line.names('isr'))}{epoch(line)}"


def ack(line: TraceLine) -> str:
    return (f"{line.node} acked up to offset {number(line, 'offset')} with acks={line.fields.get('acks')}"
            f"{epoch(line)}, its HW at {number(line, 'hw')} and its ISR {listed(line.names('isr'))}")


def hw(line: TraceLine) -> str:
    return f"{line.node}, {role(line)}, moved its HW to {number(line, 'hw')}{epoch(line)}"


def role(line: TraceLine) -> str:
    return {"leader": "leading", "follower": "following"}.get(line.name_in("role"), "in no role")


def append(line: TraceLine) -> str:
    first, count = line.whole_number("offset"), line.whole_number("count") or 1
    many = " ?" if first is None else f" {first}" if count == 1 else f"s {first} to {first + count - 1}"
    return f"{line.node}, {role(line)}, appended offset{many}{epoch(line)}"


def fetch(line: TraceLine) -> str:
    asked = f"for offset {number(line, 'offset')}{epoch(line)}"
    return f"{line.node} was asked by {line.name_in('follower')} {asked}"


def start(line: TraceLine) -> str:
    if line.whole_number("leo") is None:
        return f"{line.node} started"
    return f"{line.node} started and found LEO {number(line, 'leo')}, HW {number(line, 'hw')}"


def of_broker(verb: str) -> Callable[[TraceLine], str]:
    return lambda line: f"{line.node} {verb} {line.name_in('broker')}"


def other(line: TraceLine) -> str:
    return f"{line.node} recorded `{line.event}`"


_WORDS: Mapping[str, Callable[[TraceLine], str]] = {
    "truncate": truncate, "become_leader": become_leader, "become_follower": become_follower, "elect": elect,
    "isr": isr, "isr_proposed": isr_proposed, "ack": ack, "hw": hw, "append": append, "fetch": fetch,
    "start": start, "register": of_broker("registered"), "fence": of_broker("fenced"),
    "unfence": of_broker("unfenced"),
}
