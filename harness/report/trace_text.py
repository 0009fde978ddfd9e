"""Writes a line of the trace as text: which node did what and when, and the line's place in the file. Pure.

A line made by another tool may lack any field: a number that is missing is a question mark, all else is left
out.
"""

from collections.abc import Mapping, Sequence

from floodmark.harness.report.model import TraceLine, text
from floodmark.harness.report.phrases import seconds

ROLES = {"leader": "leading", "follower": "following"}
CLAUSES: Mapping[str, str] = {
    "truncate": '{node} truncated its log from {from} to {to}{why_bracketed}{in_epoch}',
    "become_leader": "{node} began to lead epoch {epoch} with LEO {leo}, HW {hw} and the ISR {isr}",
    "become_follower": "{node} became a follower of {leader}{in_epoch}, its LEO {leo}",
    "elect": "{node} chose {leader} to lead epoch {epoch}, its ISR {isr} ({cleanly})",
    "elect nobody": "{node} left it without a leader, its ISR {isr} ({cleanly})",
    "isr": "{node} made the ISR {isr}{in_epoch}",
    "isr learned": "{node} learned that the ISR is {isr}{in_epoch}",
    "isr_proposed": "{node} proposed the ISR {isr}{in_epoch}",
    "ack": "{node} acked up to offset {offset} with acks={acks}{in_epoch}, its HW at {hw} and its ISR {isr}",
    "hw": "{node}, {role}, moved its HW to {hw}{in_epoch}",
    "append": "{node}, {role}, appended offset{appended}{in_epoch}",
    "fetch": "{node} was asked by {follower} for offset {offset}{in_epoch}",
    "start": "{node} started and found LEO {leo}, HW {hw}",
    "start empty": "{node} started",
    "register": "{node} registered {broker}",
    "fence": "{node} fenced {broker}",
    "unfence": "{node} unfenced {broker}",
}
CHANGES: Mapping[str, str] = {  # in the timeline
    "truncate": "truncated its log from {from} to {to} in epoch {epoch}{why}",
    "become_leader": "leads epoch {epoch} with LEO {leo}, HW {hw}",
    "elect": "{election}: {leader} for epoch {epoch}, ISR {isr}{because}",
    "elect nobody": "{election}: nobody for epoch {epoch}, ISR {isr}{because}",
}


class Values(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "?"


def tell(template: str, line: TraceLine, **more: object) -> str:
    """The template, filled in with the line's fields and with `more`."""
    clean, time, why = line.fields.get("clean"), line.whole_number("time"), text(line.fields, "why")
    numbers = {name: str(number) for name in line.fields if (number := line.whole_number(name)) is not None}
    known = {"leader": str(line.fields.get("leader") or "?"), "acks": str(line.fields.get("acks"))}
    cause = line.fields.get("cause")
    return template.format_map(Values(numbers | known | {
        "node": line.node,
        "name": line.name_in("node"),
        "follower": line.name_in("follower"),
        "broker": line.name_in("broker"),
        "role": ROLES.get(line.name_in("role"), "in no role"),
        "isr": listed(line.names("isr")),
        "isr_words": " ".join(line.names("isr")),
        "alone": " alone" if len(line.names("isr")) == 1 else "",
        "when": "" if time is None else f"{seconds(time)} ",
        "place": line.place,
        "in_epoch": f" in epoch {numbers['epoch']}" if "epoch" in numbers else "",
        "appended": appended(line),
        "why": f' "{why}"' if why else "",
        "why_bracketed": f' ("{why}")' if why else "",
        "because": f" ({cause})" if isinstance(cause, str) else "",
        "cleanly": "an UNCLEAN election" if clean is False else "a clean election",
        "election": "UNCLEAN election" if clean is False else "election",
    } | {name: str(value) for name, value in more.items()}))


def appended(line: TraceLine) -> str:
    first, count = line.whole_number("offset"), line.whole_number("count") or 1
    return " ?" if first is None else f" {first}" if count == 1 else f"s {first} to {first + count - 1}"


def kind_of(line: TraceLine) -> str:
    """The event; of some there are two kinds."""
    knows_end = line.whole_number("leo") is not None
    if line.event == "elect" and not line.fields.get("leader"):
        return "elect nobody"
    if line.event == "start" and not knows_end:
        return "start empty"
    return "isr learned" if line.event == "isr" and knows_end else line.event


def clause_of(line: TraceLine) -> str:
    """`at 1.033 s n3 truncated its log from 4 to 3 ("to the high watermark") in epoch 1 (trace.jsonl:60)`."""
    at = "" if line.whole_number("time") is None else "at {when}"
    clause = CLAUSES.get(kind_of(line))
    return tell(f"{at}{clause or '{node} recorded `{event}`'} ({{place}})", line, event=line.event)


def change_line(line: TraceLine, *, where: bool = False) -> str:
    """A line of the trace in the ops' format: seconds, node, change, place. where: with its partition."""
    at = f"{(line.whole_number('time') or 0) / 1e9:9.3f}"
    of = "p{partition}: " if where else ""
    change = CHANGES.get(kind_of(line), "ISR {isr} in epoch {epoch}{because}")
    return tell(f"{'':>8} {at} s  {{name:<16}} {of}{change} ({{place}})", line)


def removes(line: TraceLine, offset: int) -> bool:
    """Whether the line is a truncation that removed the offset."""
    first, behind = line.whole_number("to"), line.whole_number("from")
    return line.event == "truncate" and first is not None and behind is not None and first <= offset < behind


def listed(items: Sequence[str]) -> str:
    """`n1, n2 and n3`."""
    return ", ".join(items[:-1]) + (" and " if len(items) > 1 else "") + items[-1] if items else "nobody"
