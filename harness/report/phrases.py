"""Formats ops, faults, lines of the trace and findings for people, one line each; in colour where a terminal
shows it.

Rules
1. Pure: from values to text. click.echo drops the colours if standard output is no terminal.
2. Of an op with many records, those that the reader asked about come first.
3. A line of the trace that another tool made may lack any field: a number that is missing is a question mark,
   all else is left out.
"""

import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from floodmark.harness.errors import UsageError
from floodmark.harness.op import NEMESIS, Op, Read, Send, Type
from floodmark.harness.report.model import TraceLine, items, mapping, text
from floodmark.harness.schedule.moments import read_moment
from floodmark.harness.verdict import BUG

WIDTH = 110
RECORDS_SHOWN = 4  # of one op
Record = Send | Read
Asked = Callable[[Record], bool]


def command_line(*words: object) -> str:
    """`floodmark ...` with these words, to be typed into a shell."""
    return shlex.join(["floodmark", *map(str, words)])


def plural(items: Sequence[object], noun: str) -> str:
    return f"{noun}s" if len(items) > 1 else noun


def number_of(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def class_text(found: Mapping[str, Any]) -> str:
    """What a group of findings counts as: `a bug`, or what permits it."""
    if found["class"] == BUG:
        return click.style("a bug", fg="red")
    return click.style(f"permitted by {found['permitted_by']}", fg="yellow")


def group_text(found: Mapping[str, Any]) -> str:
    """`3 findings, a bug`."""
    return f"{number_of(found['count'], 'finding')}, {class_text(found)}"


def cut_text(text: str, limit: int) -> str:
    """The text, cut after a word if it is longer than the limit."""
    return text if len(text) <= limit else text[:limit - 4].rsplit(" ", 1)[0] + " ..."


def with_heads(
    parts: Iterable[tuple[str, str]], *, indent: int = 4, head: int = 7, width: int = WIDTH
) -> Iterator[str]:
    """Yields sentences after their heads, wrapped."""
    for name, sentence in parts:
        yield textwrap.fill(sentence, width, initial_indent=f"{' ' * indent}{name:<{head}}",
                            subsequent_indent=" " * (indent + head), break_on_hyphens=False,
                            break_long_words=False)


def seconds(time_ns: int) -> str:
    return f"{time_ns / 1e9:.3f} s"


def op_line(op: Op, asked: Asked = lambda _: False) -> str:
    """An op on one line: index, seconds, process, and what it did; of its records those asked about first."""
    if op.process == NEMESIS:
        who, did = "nemesis", fault_text(op)
    else:
        parts = [*records(op.sends or (), asked), *records(op.reads or (), asked),
                 *(f"p{end.partition} ends at {end.offset}" for end in op.offsets or ()),
                 *([f"partitions {', '.join(map(str, op.partitions))}"] if op.partitions else []),
                 *(["nothing"] if op.f == "poll" and op.type is Type.OK and not op.reads else [])]
        who = f"process {op.process}"
        did = f"{op.f:<5} {op.type:<6} {', '.join(parts)}{' ' + op.error if op.error else ''}"
    return f"{op.index:>8} {op.time / 1e9:9.3f} s  {who:<16} {did}".rstrip()


def records(items: Sequence[Record], asked: Asked) -> Iterable[str]:
    """Yields `p0: 17 at 5`: the records asked about; if there are none, the first few."""
    shown = ([item for item in items if asked(item)] or items)[:RECORDS_SHOWN]
    for item in shown:
        where = "" if item.offset is None else f" at {item.offset}"
        epoch = "" if item.epoch is None else f" (epoch {item.epoch})"
        yield f"p{item.partition}: {item.value}{where}{epoch}"
    if len(items) > len(shown):
        yield f"{len(items) - len(shown)} more"


# -- faults -------------------------------------------------------------------------------------------------

def fault_text(op: Op) -> str:
    """A fault on one line: what the nemesis did, to which nodes, at which moment, and what data was lost."""
    fault = op.fault or {}
    named = [] if "grudge" in fault else [str(node) for node in items(fault, "nodes")]
    error = text(fault, "error")
    parts = [" ".join([op.f, *named]), *grudge(fault.get("grudge")),
             *(election(fault) if op.f == "elect" else []), failpoint(mapping(fault, "point")),
             *(loss(fault) if fault.get("lost") is True else []), asked_moment(fault.get("moment")),
             op.error or "", f"failed half-way: {error}" if error else ""]
    return "; ".join(part for part in parts if part)


def grudge(value: object) -> list[str]:
    unheard = value if isinstance(value, Mapping) else {}
    return [f"{node} receives nothing from {' '.join(map(str, items(unheard, node)))}" for node in unheard]


def election(fault: Mapping[str, Any]) -> list[str]:
    leader = [str(fault["leader"])] if fault.get("leader") else []
    kind = ["unclean"] if fault.get("unclean") else [] if leader else ["preferred"]
    return [" ".join([*kind, *leader, *(f"p{key}" for key in items(fault, "partitions"))]),
            *(f"p{key} refused ({why})" for key, why in mapping(fault, "refused").items())]


def failpoint(point: Mapping[str, Any]) -> str:
    """`F.truncated, hold, p0, epoch 2`: a failpoint and its conditions, as schedules write them."""
    plain = [str(point[key]) for key in ("name", "action") if key in point]
    where = [f"p{point['partition']}"] if "partition" in point else []
    others = [f"{key} {point[key]}" for key in point if key not in ("name", "action", "partition")]
    return ", ".join([*plain, *where, *others])


def loss(fault: Mapping[str, Any]) -> list[str]:
    """What was lost; and where the logs that a power cut should keep ended: `p0 kept to 7 (5 asked)`."""
    parts = [f"{node} lost {number_of(number, 'record')}"
             for node, number in mapping(fault, "lost_records").items() if isinstance(number, int)]
    parts = parts or ["all data lost" if fault.get("kind") == "wiped" else "what was not fsynced is lost"]
    by_node = {node: one for node, one in mapping(fault, "kept").items() if isinstance(one, Mapping)}
    for key, leo in mapping(fault, "keep").items():
        ends = {node: one[key] for node, one in by_node.items() if key in one}
        where = [f"{end} on {node}" if len(by_node) > 1 else str(end) for node, end in ends.items()]
        differs = "" if all(end == leo for end in ends.values()) else f" ({leo} asked)"
        parts.append(f"p{key} kept to {', '.join(where)}{differs}" if ends else f"p{key} to be kept to {leo}")
    share = fault.get("keep_share")
    parts += [f"{share:.0%} of each log asked to be kept"] if isinstance(share, int | float) else []
    return parts


def asked_moment(moment: object) -> str:
    """The moment that was asked for; empty for a time, because the line has its own."""
    try:
        return read_moment(moment).asked() if isinstance(moment, Mapping) else ""
    except UsageError:  # a history of another version, or a damaged one
        return ""


def where_struck(op: Op, partition: int | None) -> str:
    """Leader and ISR of the partition at the time of the fault, if it recorded them."""
    where = mapping(op.fault or {}, "where")
    leader, isr = (mapping(where, name).get(str(partition)) for name in ("leader", "isr"))
    if partition is None or (leader is None and isr is None):
        return ""
    members = " ".join(map(str, isr)) if isinstance(isr, list) else ""
    return f"   [p{partition}: leader {leader or 'none'}, ISR {members}]"


# -- quantities ---------------------------------------------------------------------------------------------

def time_text(time_s: float) -> str:
    """Print a time with its two largest units: `3 h 58 min`, `12 min 5 s`, `4.2 s`."""
    if time_s < 60:
        return f"{time_s:.1f} s" if time_s < 10 else f"{time_s:.0f} s"
    minutes, rest_s = divmod(round(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest_s, "s")]
    first = 0 if hours else 1
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number)


def short_time_text(time_s: float) -> str:
    """Print a time with three digits: `0.123 ms`, `12.3 ms`, `1.23 s`, `123 s`."""
    return f"{1000 * time_s:.3g} ms" if time_s < 0.9995 else f"{time_s:.3g} s" if time_s < 999.5 else (
        f"{time_s:.0f} s")


def size_text(size: int) -> str:
    """Print a size: `512 MB`, `2.1 GB`."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}" if size < 10 * unit else f"{size / unit:.0f} {name}"
    return f"{size} B"


def count_text(count: int) -> str:
    """Print a count: `45,605`, and from a million on `1.9 M`."""
    return f"{count:,}" if count < 10**6 else f"{count / 10**6:,.1f} M"


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
