"""Writes the paragraph about a finding: what happened, when and by whom it was acked, which replicas had it
and have it, the event to blame, why that is (not) allowed, and the lines of the files that show it; and the
summary of what happened to its record, in five lines: the ack, the faults, truncations, elections, the loss.

Pure: from evidence to sentences with heads. A sentence without evidence is left out: without a trace there is
none on truncations and elections. What was said about an earlier finding of the run (the same event, the same
permission) is not repeated. Each line of a summary fits a terminal of WIDE columns; of many items it has the
first few, and the number of the others.
"""

from collections.abc import Callable, Iterator, Sequence

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.text.blame_words import blame_in, knows_blame
from floodmark.checkers.text.explain import EXPLANATIONS, FACTS, PERMISSIONS
from floodmark.checkers.text.words import without_lines
from floodmark.harness.faults import OF_LINKS, SPARES_FLUSHED
from floodmark.harness.op import Op, Read, Send, Type
from floodmark.harness.report.evidence import Evidence, began
from floodmark.harness.report.model import (
    HISTORY,
    MOST,
    AckEvent,
    Copy,
    Part,
    TraceLine,
    items,
    mapping,
    text,
    text_of,
)
from floodmark.harness.report.phrases import (
    clause_of,
    cut_text,
    fault_text,
    listed,
    plural,
    removes,
    seconds,
    tell,
)
from floodmark.harness.report.run_files import saved_log_lines

# The guarantees that decide about a finding: their names in run.json, and as people call them.
OF_LOSSES = (("acks", "acks"), ("min_insync_replicas", "min.insync.replicas"),
             ("unclean_leader_election", "unclean elections"))
OF_PRODUCERS = (("acks", "acks"), ("retries", "retries"), ("idempotence", "idempotence"))
OF_READERS = (("isolation", "isolation"),)
RETRIED = (names.DUPLICATE, names.NONMONOTONIC_SEND, names.INT_NONMONOTONIC_SEND)
ISOLATED = (names.G1A, names.PRECOMMITTED_READ, *names.CYCLES)
# Errors after which the record may be in some log: a client must not count them as a certain failure.
IN_DOUBT = frozenset({
    "TIMEOUT", "CONNECTION", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_FOR_PARTITION",
})  # fmt: skip
SENTENCE = 1_000  # characters, at most
LAST_WORDS = 10  # of a broker that died
SHOWN = 3  # acts that permit a finding
ACKED = "; by {node}{weak} as the leader of epoch {epoch}, its ISR {isr}{alone}, its HW {hw}, {place}"
SENDS = {
    Type.OK: "was acked {values}{at}",
    Type.INVOKE: "began to send {values}",
    Type.FAIL: "got a certain failure of its send of {values}{error}",
    Type.INFO: "never learned whether its send of {values} succeeded{error}",
}


def narrate_finding(evidence: Evidence, before: Sequence[Evidence] = ()) -> tuple[Part, ...]:
    """The paragraph about one example. `before`: the evidence of the paragraphs above it, of the same run."""
    event, last_words = evidence.event, lines_of_died_broker(evidence)
    is_quoted_above = event is not None and any(
        one.event is not None and one.event.number == event.number for one in before)
    losses = [line for line in evidence.copy_losses if event is None or line.number != event.number]
    blamed = evidence.is_bug and event is not None and (
        knows_blame(evidence.example) or not evidence.example.get("blame"))
    parts = [
        ("what", f"{what_happened(evidence)} {blame_in(evidence.example)}".rstrip()),
        ("when", unless_repeated(when_and_by_whom, evidence, before)),
        ("held", unless_repeated(copies_then_and_now, evidence, before)),
        ("guilty" if blamed else "event", "" if event is None else f"the line quoted above, {event.place}."
         if is_quoted_above else f"{clause_of(event)}{meaning(evidence, event)}."),
        ("copies", f"{'; '.join(map(clause_of, losses))}." if losses and not is_quoted_above else ""),
        *(("" if at else "words", line) for at, line in enumerate(last_words)),
        ("why", " ".join(broken_law(evidence, before) if evidence.is_bug else
                         why_permitted(evidence, before))),
    ]
    return tuple((head, sentence if len(sentence) <= SENTENCE else f"{sentence[:SENTENCE]} ...")
                 for head, sentence in parts if sentence)


def what_happened(evidence: Evidence) -> str:
    """The example's sentence, without references to lines that the paragraph names by file and number."""
    has_ops = bool(evidence.conclusive_ops) and evidence.name not in names.CYCLES
    sentence = without_lines(
        text_of(evidence.example), of_history=has_ops, of_trace=evidence.event is not None)
    if lines_of_died_broker(evidence):
        sentence = sentence.split("; its last words: ")[0].removesuffix(".") + "."  # quoted line by line
    return sentence


def lines_of_died_broker(evidence: Evidence) -> list[str]:
    """How a broker that died ended, and the end of its log; of very many lines the first and the last."""
    if evidence.name != names.BROKER_DIED or not evidence.nodes:
        return []
    lines = saved_log_lines(evidence.about, evidence.nodes[0])
    return lines if len(lines) <= LAST_WORDS else [lines[0], "...", *lines[2 - LAST_WORDS:]]


def unless_repeated(
    write: Callable[[Evidence], str], evidence: Evidence, before: Sequence[Evidence]
) -> str:
    """The sentence; if it was written for an earlier finding already, a reference to that one."""
    sentence = write(evidence)
    same = next((one.name for one in before if sentence and write(one) == sentence), None)
    return sentence if same is None else f"as described above for {same}."


# -- when, and by whom --------------------------------------------------------------------------------------

def when_and_by_whom(evidence: Evidence) -> str:
    """What the clients asked and what answers they got, in the history's order, and which leader acked."""
    if evidence.name == names.STUCK:
        settling = mapping(evidence.about, "settle").get("why")
        return f"settling: {settling} (run.json)." if settling else ""
    acks, clauses = evidence.ack_events, list[str]()
    for op in sorted(evidence.conclusive_ops, key=lambda op: op.index):
        by_whom = "".join(tell(ACKED, one.line, weak=weak(one.line, " with")) for one in acks
                          if one.index == op.index)
        clauses.append(f"at {seconds(op.time)} {op_clause(evidence, op)} ({place_of(op)}{by_whom})")
    clauses += [clause_of(one.line) for one in acks if one.index is None]
    return "; ".join(clauses) + "." if clauses else ""


def place_of(op: Op) -> str:
    """`history.jsonl:8`."""
    return f"{HISTORY}:{op.index + 1}"


def weak(line: TraceLine, before: str) -> str:
    """`, acks=1` after `,`; empty for acks=all."""
    acks = line.fields.get("acks")
    return "" if acks == "all" else f"{before} acks={acks}"


def op_clause(evidence: Evidence, op: Op) -> str:
    """`process 3 was acked 17 at offset 5`."""
    clauses = []
    if op.sends:
        sends = concerned_records(evidence, op.sends)
        more = ["..."] if len(sends) > SHOWN else []
        values = ", ".join([*(str(send.value) for send in sends[:SHOWN]), *more])
        clauses.append(SENDS[op.type].format(
            values=values + other_partitions(evidence, sends), at=offsets(sends),
            error=f" ({op.error})" if op.error else ""))
    if op.reads:
        reads = concerned_records(evidence, op.reads)
        value = f" {reads[0].value}" if len(reads) == 1 else ""
        ended = "" if op.type is Type.OK else f" and in a {op.f} that ended in {op.type}"
        clauses.append(f"read{value}{other_partitions(evidence, reads)}{offsets(reads)}{ended}")
    if not clauses:
        ends = [end.offset for end in op.offsets or () if end.partition == evidence.partition]
        clauses = [f"got {end} as the log's end" for end in ends[:1]] or [f"asked for {op.f} ({op.type})"]
    return f"process {op.process} {' and '.join(clauses)}"


def concerned_records(evidence: Evidence, records: Sequence[Send | Read]) -> list[Send | Read]:
    """The records of the finding's value or offset; if none is, those of its partition; else all."""
    here = [record for record in records if record.partition == evidence.partition]
    return list(filter(evidence.concerns, records)) or here or list(records)


def other_partitions(evidence: Evidence, records: Sequence[Send | Read]) -> str:
    """The records' partitions, if they are not the finding's."""
    partitions = sorted({record.partition for record in records})
    return "" if partitions in ([], [evidence.partition]) else (
        f" of {plural(partitions, 'partition')} {', '.join(map(str, partitions[:SHOWN]))}")


def offsets(records: Sequence[Send | Read]) -> str:
    there = [record.offset for record in records if record.offset is not None]
    if len(there) <= SHOWN:
        return f" at {plural(there, 'offset')} {', '.join(map(str, there))}" if there else ""
    return f" at offsets {there[0]} to {there[-1]}"


# -- which replicas had it, and have it ---------------------------------------------------------------------

def copies_then_and_now(evidence: Evidence) -> str:
    """Which replicas had appended the record when it was acked, and which have it in their final logs."""
    if evidence.skipped is not None:
        at, record = evidence.skipped
        return (f"between its reads the leader's log has, for example, {record.value} at offset {at} "
                f"({record.place}).")
    if not evidence.copies:
        return ""
    clauses = [f"when it was acked, {listed(one.appended_by)} had appended it"
               for one in evidence.ack_events[:1] if one.appended_by]
    clauses.append(f"at offset {evidence.offset} in the end {who_has_it_now(evidence)}")
    readers = [str(process) for process in items(mapping(evidence.about, "final_reads"), "processes")]
    if evidence.name == names.UNSEEN and readers:
        es = "es" if len(readers) > 1 else ""
        clauses.append(f"process{es} {listed(readers[:SHOWN])} read to the end after settling")
    return "; ".join(clauses) + "."


def who_has_it_now(evidence: Evidence, *, places: int = MOST) -> str:
    """`n3 (the leader), n1 and n2 have 4 of epoch 2 (logs/n3.jsonl:4)`: equal copies are listed together.
    places: how many lines are named at most."""
    together: dict[str, list[Copy]] = {}
    records = [copy.record for copy in evidence.copies if copy.record is not None]
    contents = {(one.epoch, one.value) for one in records}
    bytes_differ = len({(one.epoch, one.value, one.crc) for one in records}) > len(contents)
    for copy in sorted(evidence.copies, key=lambda copy: not copy.leads):
        crc = f", CRC {copy.record.crc}" if bytes_differ and copy.record is not None else ""
        together.setdefault(copy_text(copy, evidence.offset) + crc, []).append(copy)
    clauses = list[str]()
    for content, copies in together.items():
        nodes = [f"{copy.node} (the leader)" if copy.leads else copy.node for copy in copies]
        lines = [f" ({copy.record.place})" for copy in copies if copy.record is not None]
        shown = lines[0] if lines and places > 0 else ""
        places -= bool(lines)
        clauses.append(f"{listed(nodes)} {'has' if len(nodes) == 1 else 'have'} {content}{shown}")
    return ", ".join(clauses)


def copy_text(copy: Copy, offset: int | None) -> str:
    if (record := copy.record) is not None:
        value = "a record that is not the run's" if record.value is None else str(record.value)
        of_epoch = f" of epoch {record.epoch}" if record.epoch is not None and record.epoch >= 0 else ""
        return f"{value}{of_epoch}" + (f" ({record.flaw})" if record.flaw else "")
    if not copy.readable or offset is None:
        return "nothing" if copy.readable else "no dump"
    if copy.leo is not None and copy.leo <= offset:
        return f"nothing (LEO {copy.leo})"
    begins_later = copy.log_start is not None and offset < copy.log_start
    return f"nothing (log start {copy.log_start})" if begins_later else "nothing"


def meaning(evidence: Evidence, event: TraceLine) -> str:
    """What a line of the trace did to the record, in a clause."""
    offset, end = evidence.offset, event.whole_number("leo")
    if offset is None:
        return ""
    if evidence.name == names.CANDIDATE_INCOMPLETE and event.event != "truncate":
        return f": from then on {listed(evidence.nodes)} could have been elected without it"
    if removes(event, offset):
        return f": it removed offset {offset}"
    if event.event == "become_leader" and end is not None and end <= offset:
        return f": without offset {offset}, which its next record{'' if end == offset else 's'} will get"
    return ""


# -- why ----------------------------------------------------------------------------------------------------

def broken_law(evidence: Evidence, before: Sequence[Evidence]) -> Iterator[str]:
    """The broken law, that nothing permits this, and one commonly misread fact that explains this case."""
    explained = EXPLANATIONS.get(evidence.name)
    if explained is None:
        yield f"That is the law of a registered check: floodmark explain {evidence.name}."
    else:
        yield f"{explained.law}."
        yield ("No setting permits this." if explained.permitted == "nothing" else
               "Nothing here permits it." if any(one.is_bug for one in before) else
               f"Neither {promised(evidence)} nor the faults permit it here.")
    guarantees = mapping(evidence.about, "guarantees")
    acks = guarantees.get("acks", "all")
    if acks != "all" and evidence.name == names.SAW_THEN_LOST:
        yield f"Nor does acks={acks}: a record that a reader saw had been committed."
    if evidence.acts and not any(one.acts == evidence.acts for one in before):
        cuts = all(isinstance(one, Op) and one.f in SPARES_FLUSHED for one in evidence.acts)
        but = ("flush.messages=1 guarantees that acked records are on disk"
               if guarantees.get("flush") == "every" and cuts else
               "no leader was chosen from such copies alone")
        yield f"Data was lost: {first_acts(evidence.acts)}; but {but}."
    told = {fact for one in before for fact in relevant_facts(one)}
    for fact in [fact for fact in relevant_facts(evidence) if fact not in told][:1]:
        thought = FACTS[fact].thought.removesuffix(".")
        yield f"Many believe that {thought[0].lower()}{thought[1:]} ({fact}). {FACTS[fact].holds}"


def promised(evidence: Evidence) -> str:
    """The settings that might have permitted the finding and do not."""
    guarantees = mapping(evidence.about, "guarantees")
    asked = (OF_READERS if evidence.name in ISOLATED else
             OF_PRODUCERS if evidence.name in RETRIED else OF_LOSSES)
    settings = [f"{key} {'on' if value else 'off'}" if isinstance(value, bool) else f"{key}={value}"
                for name, key in asked if (value := guarantees.get(name)) is not None]
    return f"the settings ({', '.join(settings)})" if settings else "the settings"


def relevant_facts(evidence: Evidence) -> Iterator[str]:
    """The ids of the facts (checkers' FACTS) that this evidence is a case of."""
    event, name = evidence.event, evidence.name
    if not evidence.is_bug:
        return
    truncated = event is not None and event.event == "truncate"
    if truncated and evidence.about.get("rules") == "high-watermark":
        yield "S20"
    isrs = [one.line.names("isr") for one in evidence.ack_events]
    leaders = {copy.node for copy in evidence.copies if copy.leads}
    if name == names.LOST_WRITE and isrs and isrs[0] and leaders.isdisjoint(isrs[0]) and leaders:
        yield "S1"  # the final leader was not in the ISR of the ack
    if name == names.ACK_RULE and evidence.example.get("how") == "member":
        yield "S2"
    if name == names.G1A and any(op.type is Type.FAIL and op.error in IN_DOUBT for op in evidence.ops):
        yield "S6"
    if name == names.DIVERGED and any(line.fields.get("clean") is False for line in evidence.elections):
        yield "S10"
    if name in (names.NONMONOTONIC_POLL, names.POLL_SKIP) and truncated:
        yield "S16"
    if name == names.END_OFFSET_REGRESSED and evidence.elections:
        yield "S15"


def why_permitted(evidence: Evidence, before: Sequence[Evidence]) -> Iterator[str]:
    """`Not counted as a bug: permitted by acks: ...`; the meaning only once a run."""
    cause = str(evidence.found.get("permitted_by"))
    head = f"Not counted as a bug: permitted by {cause}"
    if any(one.found.get("permitted_by") == cause for one in before):
        yield f"{head}, as described above."
        return
    yield f"{head}: {PERMISSIONS[cause].means}." if cause in PERMISSIONS else f"{head}."
    if evidence.acts:
        yield f"Here: {first_acts(evidence.acts)}."
    if cause == "retries" and evidence.about.get("resent"):
        yield ("Here: the client's library itself repeated records under another producer id or "
               "epoch (`resent` in run.json); no broker can recognize such a repeat.")
    if evidence.perhaps:
        yield f"Perhaps: {evidence.perhaps}."
    yield "With --strict it fails the gate."


def first_acts(acts: Sequence[Op | TraceLine]) -> str:
    """`at 2.030 s power_cut n1; n1 lost 5 records (history.jsonl:23)`: the first few, and how many more."""
    shown = [clause_of(one) if isinstance(one, TraceLine) else
             f"at {seconds(one.time)} {fault_text(one)} ({place_of(one)})" for one in acts[:SHOWN]]
    return "; ".join([*shown, *([f"and {len(acts) - SHOWN} more"] if len(acts) > SHOWN else [])])


WIDE = 120
HEAD = 13  # columns before the text
AT_AN_OFFSET = frozenset({  # findings that the logs' entries at one offset show best
    names.SAW_THEN_LOST, names.INCONSISTENT_OFFSETS, names.DIVERGED, names.UNDER_REPLICATED,
    names.LEADER_INCOMPLETE, names.CANDIDATE_INCOMPLETE, names.UNSAFE_TRUNCATION, names.ACK_RULE,
})  # fmt: skip
ACKER = "by leader {node}, epoch {epoch}{weak}, ISR {isr_words}{alone}"


def summary(evidence: Evidence) -> list[Part]:
    """The heads and lines of the summary, none longer than WIDE with its head. Empty if there is nothing but
    the finding itself, which has its own paragraph."""
    begins = ("acked", acks) if (acks := acked(evidence)) else ("seen", seen(evidence))
    lines = [begins, ("struck", struck(evidence)), ("truncated", truncated(evidence)),
             ("elected", elected(evidence)), last(evidence)]
    shown = [(head, cut_text(line, WIDE - HEAD)) for head, line in lines if line]
    return shown if any(head != "struck" for head, _ in shown[:-1]) else []


def heads_covered_by(summary: Sequence[Part], evidence: Evidence) -> frozenset[str]:
    """The heads of the paragraph's parts that the summary covers completely."""
    heads = dict(summary)
    return frozenset(part for part, is_so in (
        ("when", "acked" in heads and len(evidence.conclusive_ops) <= 1),
        ("held", "gone" in heads or "now" in heads), ("copies", "truncated" in heads)) if is_so)


def acked(worst: Evidence) -> str:
    """`0.970 s 3 at offset 3 of partition 0, by leader n1, epoch 0, ISR n1 n2 n3 (trace.jsonl:55)`; where
    logs differ, each record that was acked there."""
    acks: list[str] = []
    rivals = [one for one in worst.rivals if first_ack(one)[0] is not None]
    for evidence in rivals or (worst,):
        (op, send), event = first_ack(evidence), evidence.event
        # For a record that only the trace knows, its first ack or the event.
        ack_event = AckEvent(line=event, appended_by=None, index=None) if (
            op is None and event is not None and event.event == "ack") else next(
            (one for one in evidence.ack_events if one.index == (None if op is None else op.index)), None)
        value = evidence.value if send is None else send.value
        offset = evidence.offset if send is None or send.offset is None else send.offset
        where = ("" if offset is None else f"offset {offset} " if value is None else
                 f"{value} at offset {offset} ") or ("" if value is None else f"{value} ")
        what = f"{value} there" if acks and send is not None else f"{where}of partition {evidence.partition}"
        if ack_event is not None:
            who = tell("epoch {epoch}", ack_event.line) if rivals[1:] else by(ack_event)
            acks.append(at_line("{when}{what}, {who}", ack_event.line, not acks, what=what, who=who))
        elif op is not None:
            who = "" if acks else f", to process {op.process}"
            acks.append(f"{seconds(op.time)} {what}{who} ({place_of(op)})")
    return fitting(acks)


def at_line(template: str, line: TraceLine, first: bool, **more: object) -> str:
    """The clause and its line: `... (trace.jsonl:58)`, after the first on a line of a report `... (:64)`."""
    place = line.place if first else f":{line.number}"
    return tell(template + " ({place})", line, place=place, **more)


def seen(evidence: Evidence) -> str:
    """`0.580 s process 4 read 3 at offset 3 of partition 0 (history.jsonl:12)`: for want of an ack."""
    reads = ((op, one) for op in evidence.ops for one in op.reads or () if evidence.concerns(one))
    return next((f"{seconds(op.time)} process {op.process} read {one.value} at offset {one.offset} of "
                 f"partition {one.partition} ({place_of(op)})" for op, one in reads), "")


def first_ack(evidence: Evidence) -> tuple[Op | None, Send | None]:
    """The first of the finding's ops that acked its record, or, if its value is unknown, a record there."""
    value = evidence.value
    for op in sorted(evidence.conclusive_ops, key=lambda op: op.index):
        for send in (op.sends or ()) if op.type is Type.OK else ():
            if evidence.concerns(send) and value in (None, send.value):
                return op, send
    return None, None


def by(ack_event: AckEvent) -> str:
    """The leader, its epoch and ISR, and which members had the record if not all did."""
    isr, having = {*ack_event.line.names("isr")}, {*(ack_event.appended_by or ())}
    text = tell(ACKER, ack_event.line, weak=weak(ack_event.line, ","))
    return text if not having or having >= isr else (
        f"{text}; only {' '.join(sorted(having & isr)) or 'others'} had it")


def struck(evidence: Evidence) -> str:
    """`0.976 s kill n1; 0.977 s pause n2`, as many as fit; if nothing struck since, the acts before."""
    acts, before = ([f"{seconds(began(op))} {short(op)}" for op in ops]
                    for ops in (evidence.strikes(), evidence.strikes(before=True)))
    if acts or not evidence.promised:
        return fitting(acts)
    return f"nothing since; before: {fitting(before, from_the_end=True)}" if before else "nothing"


def short(op: Op) -> str:
    """An act in short: its name, its nodes or kind, and what was lost."""
    fault = op.fault or {}
    kind = [text(fault, "kind")] if isinstance(fault.get("kind"), str) else []
    parts = [op.f, *([] if op.f in OF_LINKS and kind else map(str, items(fault, "nodes"))), *kind]
    lost = [each for each in mapping(fault, "lost_records").values() if type(each) is int]
    if fault.get("lost") is True:
        parts.append(f"(lost {sum(lost)})" if lost else "(data lost)")
    parts += ["(failed)"] if fault.get("error") else []
    return " ".join([*parts, *(["(unclean)"] if fault.get("unclean") is True else [])])


def truncated(evidence: Evidence) -> str:
    """Each truncation of the record, and each start without it, in order; the reasons if they fit. What is
    the same as in the clause before is not repeated."""
    event, lines = evidence.event, list(evidence.copy_losses)
    if event is not None and event.event == "truncate" and event.number not in [one.number for one in lines]:
        lines = sorted([*lines, event], key=lambda line: line.whole_number("time") or 0)
    for why in ("{why}", ""):
        clauses, previous = list[str](), ""
        for line in lines:
            change = " from {from} to {to}" if line.event == "truncate" else " started with LEO {leo}"
            change = tell(change + why, line)
            clauses.append(at_line("{when}{node}{shown}", line, not clauses,
                                   shown=change if change != previous else ""))
            previous = change
        if len("; ".join(clauses)) <= WIDE - HEAD:
            break
    return fitting(clauses)


def elected(evidence: Evidence) -> str:
    """The elections up to the first one whose leader lacked the record; of many the last few."""
    offset = evidence.offset
    ends = {(line.name_in("node"), line.whole_number("epoch")): line.whole_number("leo")
            for line in evidence.changes if line.event == "become_leader"}
    clauses: list[str] = []
    chosen: set[object] = set()
    for line in evidence.changes:
        whose = line.name_in("leader" if line.event == "elect" else "node"), line.whole_number("epoch")
        end = ends.get(whose)
        lacked = evidence.promised and end is not None and offset is not None and end <= offset
        without = f", without it: its log ended at {end}" if lacked else ""
        if line.event == "elect":
            chosen.add(whose)
            unclean = ", an UNCLEAN election" if line.fields.get("clean") is False else ""
            who = "{leader} for epoch {epoch}" if line.fields.get("leader") else "nobody"
            clauses.append(at_line("{when}" + who + "{unclean}{without}", line, not clauses,
                                   unclean=unclean, without=without))
        elif line.event == "become_leader" and lacked and whose not in chosen:  # without an election
            clauses.append(at_line("{when}{node} leads epoch {epoch} again{without}", line, not clauses,
                                   without=without))
        else:
            continue
        if lacked:
            break
    return fitting(clauses, from_the_end=True)


def last(evidence: Evidence) -> Part:
    """The last line: what was lost; for other findings, what the final logs have."""
    in_the_end, what = "", what_happened(evidence)
    if any(copy.readable for copy in evidence.copies):  # else the logs' contents are unknown
        in_the_end = f"offset {evidence.offset}: {who_has_it_now(evidence, places=1)}"
    if evidence.name != names.LOST_WRITE:
        shown = in_the_end if evidence.name in AT_AN_OFFSET else ""
        return ("now" if shown else "found", (shown or what).removesuffix("."))
    value, count = evidence.value, int(evidence.found["count"])
    lost = f"{count} acked records" if count > 1 else "acked record" + ("" if value is None else f" {value}")
    if not evidence.is_bug:
        lost += f", permitted by {evidence.found.get('permitted_by')}"
    how = in_the_end or what.partition(", but ")[2].removesuffix(".")
    return ("gone", f"{lost}; {how}" if how else what)


def fitting(items: Sequence[str], *, from_the_end: bool = False) -> str:
    """As many items as fit on a line, at least one, and the number of the others."""
    for shown in range(len(items), 0, -1):
        left = len(items) - shown
        parts = [*([f"{left} before"] if left else []), *items[-shown:]] if from_the_end else [
            *items[:shown], *([f"and {left} more"] if left else [])]
        line = "; ".join(parts)
        if len(line) <= WIDE - HEAD or shown == 1:
            return line
    return ""
