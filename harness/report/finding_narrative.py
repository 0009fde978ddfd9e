"""Writes the paragraph about a finding: what happened, when and by whom it was acked, which replicas had it
and have it, the event to blame, why that is (not) allowed, and the lines of the files that show it.

Pure: from evidence to a few sentences with heads. A sentence without evidence is left out. What was said
about an earlier finding of the run (the same event, the same permission) is not repeated.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.text.blame_words import blame_in, knows_blame
from floodmark.checkers.text.explain import EXPLANATIONS
from floodmark.checkers.text.semantics import FACTS, PERMISSIONS
from floodmark.harness.faults import SPARES_FLUSHED
from floodmark.harness.op import Op, Read, Send, Type
from floodmark.harness.report.finding_evidence import mapping
from floodmark.harness.report.model import HISTORY, AckEvent, Copy, Evidence, Part, TraceLine, text_of
from floodmark.harness.report.phrases import fault_text, seconds
from floodmark.harness.report.trace_text import clause_of, listed, number
from floodmark.harness.verdict import BUG

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

_INDEXES = re.compile(r" \(index [\d, ]+\)")
_SEQ = re.compile(r" \([^()]+, seq \d+ of its trace\)")

Record = Send | Read


def narrate_finding(evidence: Evidence, before: Sequence[Evidence] = ()) -> tuple[Part, ...]:
    """The paragraph about one example. `before`: the evidence of the paragraphs above it, of the same run."""
    parts = [
        ("what", f"{what_happened(evidence)} {blame_in(evidence.example)}".rstrip()),
        ("when", unless_repeated(when_and_by_whom, evidence, before)),
        ("held", unless_repeated(copies_then_and_now, evidence, before)),
        ("guilty" if is_blamed(evidence) else "event", blamed_event(evidence, before)),
        ("copies", copy_loss_text(evidence, before)),
        *quote_died_broker(evidence),
        ("why", why_it_counts(evidence, before)),
    ]
    return tuple((head, shorten_sentence(sentence)) for head, sentence in parts if sentence)


def what_happened(evidence: Evidence) -> str:
    """The example's sentence, without references to lines that the paragraph names by file and number."""
    text = text_of(evidence.example)
    if conclusive_ops(evidence) and evidence.name not in names.CYCLES:
        text = _INDEXES.sub("", text)
    if evidence.name == names.BROKER_DIED and lines_of_died_broker(evidence):
        text = text.split("; its last words: ")[0].removesuffix(".") + "."  # quoted below, line by line
    return text if evidence.event is None else _SEQ.sub("", text)


def quote_died_broker(evidence: Evidence) -> Iterator[Part]:
    """How a broker that died ended, then the end of its log, line by line and unchanged."""
    for at, line in enumerate(lines_of_died_broker(evidence)):
        yield ("words" if at == 0 else "", line)


def lines_of_died_broker(evidence: Evidence) -> list[str]:
    """The lines that run.json has about it; of very many the first and the last."""
    if evidence.name != names.BROKER_DIED or not evidence.nodes:
        return []
    text = mapping(evidence.about.get("died_words")).get(evidence.nodes[0])
    lines = [line.rstrip() for line in text.splitlines() if line.strip()] if isinstance(text, str) else []
    return lines if len(lines) <= LAST_WORDS else [lines[0], "...", *lines[2 - LAST_WORDS:]]


def unless_repeated(
    write: Callable[[Evidence], str], evidence: Evidence, before: Sequence[Evidence]
) -> str:
    """The sentence; if it was written for an earlier finding already, a reference to that one."""
    sentence = write(evidence)
    same = next((one.name for one in before if sentence and write(one) == sentence), None)
    return sentence if same is None else f"as described above for {same}."


def shorten_sentence(sentence: str) -> str:
    return sentence if len(sentence) <= SENTENCE else f"{sentence[:SENTENCE]} ..."


def line_of(op: Op) -> str:
    return f"{HISTORY}:{op.index + 1}"


# -- when, and by whom --------------------------------------------------------------------------------------


def when_and_by_whom(evidence: Evidence) -> str:
    """What the clients asked and what answers they got, in the history's order, and which leader acked."""
    if evidence.name == names.STUCK:
        settling = mapping(evidence.about.get("settle")).get("why")
        return f"settling: {settling} (run.json)." if settling else ""
    clauses = []
    for op in sorted(conclusive_ops(evidence), key=lambda op: op.index):
        ack_events = [one for one in evidence.ack_events if one.index == op.index]
        where = "".join([line_of(op), *map(acked_by, ack_events)])
        clauses.append(f"at {seconds(op.time)} {op_clause(evidence, op)} ({where})")
    clauses += [f"{clause_of(one.line)}" for one in evidence.ack_events if one.index is None]
    return "; ".join(clauses) + "." if clauses else ""


def conclusive_ops(evidence: Evidence) -> list[Op]:
    """The ops worth a sentence: completions, and invocations without one; for realtime-order all."""
    ops = evidence.ops
    if evidence.name == names.REALTIME_ORDER:
        return list(ops)
    ended = {op.process for op in ops if op.type is not Type.INVOKE}
    return [op for op in ops if op.type is not Type.INVOKE or op.process not in ended]


def op_clause(evidence: Evidence, op: Op) -> str:
    """`process 3 was acked 17 at offset 5`."""
    who = f"process {op.process}"
    clauses = [send_clause(evidence, op)] if op.sends else []
    clauses += [read_clause(evidence, op)] if op.reads else []
    if not clauses and op.offsets is not None:
        ends = [end.offset for end in op.offsets if end.partition == evidence.number("partition")]
        clauses = [f"got {ends[0]} as the log's end"] if ends else []
    if op.reads and op.type is not Type.OK:
        clauses.append(f"in a {op.f} that ended in {op.type}")
    return f"{who} {' and '.join(clauses) or f'asked for {op.f} ({op.type})'}"


def send_clause(evidence: Evidence, op: Op) -> str:
    records = concerned_records(evidence, op.sends or ())
    values = ", ".join(str(send.value) for send in records[:SHOWN])
    values += ", ..." if len(records) > SHOWN else ""
    values += other_partitions(evidence, records)
    error = f" ({op.error})" if op.error else ""
    if op.type is Type.OK:
        return f"was acked {values}{offsets(records)}"
    return {
        Type.INVOKE: f"began to send {values}",
        Type.FAIL: f"got a certain failure of its send of {values}{error}",
        Type.INFO: f"never learned whether its send of {values} succeeded{error}",
    }[op.type]


def read_clause(evidence: Evidence, op: Op) -> str:
    """The reads of the record; else the offsets that the poll read."""
    records = concerned_records(evidence, op.reads or ())
    where = other_partitions(evidence, records)
    if len(records) == 1:
        return f"read {records[0].value}{where}{offsets(records)}"
    return f"read{where}{offsets(records)}"


def concerned_records(evidence: Evidence, records: Sequence[Record]) -> list[Record]:
    """The records of the finding's value or offset; if none is, those of its partition; else all."""
    here = [record for record in records if record.partition == evidence.number("partition")]
    exact = [record for record in here
             if evidence.concerns(record.partition, record.offset, record.value)]
    return exact or here or list(records)


def other_partitions(evidence: Evidence, records: Sequence[Record]) -> str:
    """The records' partitions, if they are not the finding's."""
    partitions = sorted({record.partition for record in records})
    if not partitions or partitions == [evidence.number("partition")]:
        return ""
    return f" of partition{'s' if len(partitions) > 1 else ''} {', '.join(map(str, partitions[:SHOWN]))}"


def offsets(records: Sequence[Record]) -> str:
    there = [record.offset for record in records if record.offset is not None]
    if not there:
        return ""
    if len(there) <= SHOWN:
        return f" at offset{'s' if len(there) > 1 else ''} {', '.join(map(str, there))}"
    return f" at offsets {there[0]} to {there[-1]}"


def acked_by(ack_event: AckEvent) -> str:
    """`; by n1 as the leader of epoch 0, its ISR n1, n2 and n3, its HW 4, trace.jsonl:53`."""
    line = ack_event.line
    alone = " alone" if len(line.names("isr")) == 1 else ""
    acks = line.fields.get("acks")
    weak = "" if acks == "all" else f" with acks={acks}"
    return (f"; by {line.node}{weak} as the leader of epoch {number(line, 'epoch')}, its ISR "
            f"{listed(line.names('isr'))}{alone}, its HW {number(line, 'hw')}, {line.place}")


# -- which replicas had it, and have it ---------------------------------------------------------------------


def copies_then_and_now(evidence: Evidence) -> str:
    """Which replicas had appended the record when it was acked, and which have it in their final logs."""
    if evidence.skipped is not None:
        at, record = evidence.skipped
        return (f"between its reads the leader's log has, for example, {record.value} at offset {at} "
                f"({record.place}).")
    if not evidence.copies:
        return ""
    then = [f"when it was acked, {listed(one.appended_by)} had appended it"
            for one in evidence.ack_events[:1] if one.appended_by]
    return "; ".join([*then, who_has_it_now(evidence), *read_to_the_end(evidence)]) + "."


def read_to_the_end(evidence: Evidence) -> Iterator[str]:
    """For an unseen record: the processes that read to the end after settling."""
    processes = mapping(evidence.about.get("final_reads")).get("processes")
    if evidence.name == names.UNSEEN and isinstance(processes, list) and processes:
        who = listed([str(process) for process in processes[:SHOWN]])
        yield f"process{'es' if len(processes) > 1 else ''} {who} read to the end after settling"


def who_has_it_now(evidence: Evidence) -> str:
    """`at offset 3 in the end n3 (the leader), n1 and n2 have 4 of epoch 2`: equal copies are listed
    together."""
    offset = evidence.number("offset")
    together: dict[str, list[Copy]] = {}
    bytes_differ = have_different_bytes(evidence.copies)
    for copy in sorted(evidence.copies, key=lambda copy: not copy.leads):
        crc = f", CRC {copy.record.crc}" if bytes_differ and copy.record is not None else ""
        together.setdefault(copy_text(copy, offset) + crc, []).append(copy)
    clauses = []
    for text, copies in together.items():
        nodes = [f"{copy.node} (the leader)" if copy.leads else copy.node for copy in copies]
        verb = "has" if len(nodes) == 1 else "have"
        place = next((f" ({copy.record.place})" for copy in copies if copy.record is not None), "")
        clauses.append(f"{listed(nodes)} {verb} {text}{place}")
    return f"at offset {offset} in the end {', '.join(clauses)}"


def have_different_bytes(copies: Sequence[Copy]) -> bool:
    """Whether two copies have the same epoch and value but different bytes."""
    records = [copy.record for copy in copies if copy.record is not None]
    return len({(one.epoch, one.value, one.crc) for one in records}) > len(
        {(one.epoch, one.value) for one in records})


def copy_text(copy: Copy, offset: int | None) -> str:
    record = copy.record
    if record is not None:
        value = "a record that is not the run's" if record.value is None else str(record.value)
        of_epoch = f" of epoch {record.epoch}" if record.epoch is not None and record.epoch >= 0 else ""
        return f"{value}{of_epoch}" + (f" ({record.flaw})" if record.flaw else "")
    if not copy.readable:
        return "no dump"
    if offset is not None and copy.leo is not None and copy.leo <= offset:
        return f"nothing (LEO {copy.leo})"
    if offset is not None and copy.log_start is not None and offset < copy.log_start:
        return f"nothing (log start {copy.log_start})"
    return "nothing"


# -- the event to blame -------------------------------------------------------------------------------------


def blamed_event(evidence: Evidence, before: Sequence[Evidence]) -> str:
    """The line of the trace that the judge blames, and what it did to the record."""
    event = evidence.event
    if event is None:
        return ""
    if any(one.event is not None and one.event.number == event.number for one in before):
        return f"the line quoted above, {event.place}."
    return f"{clause_of(event)}{meaning(evidence, event)}."


def copy_loss_text(evidence: Evidence, before: Sequence[Evidence]) -> str:
    """How the other copies were lost."""
    event = evidence.event
    if event is not None and any(
            one.event is not None and one.event.number == event.number for one in before):
        return ""
    losses = [line for line in evidence.copy_losses if event is None or line.number != event.number]
    return f"{'; '.join(map(clause_of, losses))}." if losses else ""


def is_blamed(evidence: Evidence) -> bool:
    """Whether the finding is a bug and the judge knows which line of the trace caused it."""
    is_known = knows_blame(evidence.example) or not evidence.example.get("blame")
    return evidence.found["class"] == BUG and evidence.event is not None and is_known


def meaning(evidence: Evidence, event: TraceLine) -> str:
    """What that line did to the record, in a clause."""
    offset = evidence.number("offset")
    if offset is None:
        return ""
    if evidence.name == names.CANDIDATE_INCOMPLETE and event.event != "truncate":
        return f": from then on {listed(evidence.nodes)} could have been elected without it"
    if event.event == "truncate":
        first, behind = event.whole_number("to"), event.whole_number("from")
        if first is not None and behind is not None and first <= offset < behind:
            return f": it removed offset {offset}"
    if event.event == "become_leader":
        end = event.whole_number("leo")
        if end is not None and end <= offset:
            return f": without offset {offset}, which its next record will get"
    return ""


# -- why ----------------------------------------------------------------------------------------------------


def why_it_counts(evidence: Evidence, before: Sequence[Evidence]) -> str:
    """The broken law and that nothing permits this; or what permits it, and how to make it fail."""
    if evidence.found["class"] == BUG:
        return " ".join([*broken_law(evidence, before), *note_fact(evidence, before)])
    return why_permitted(evidence, before)


def broken_law(evidence: Evidence, before: Sequence[Evidence]) -> Iterator[str]:
    explained = EXPLANATIONS.get(evidence.name)
    if explained is not None:
        yield f"{explained.law}."
    if explained is None:
        yield f"That is the law of a registered check: floodmark explain {evidence.name}."
    elif explained.permitted == "nothing":
        yield "No setting permits this."
    elif any(one.found["class"] == BUG for one in before):
        yield "Nothing here permits it."
    else:
        yield f"Neither {promised(evidence)} nor the faults permit it here."
    guarantees = mapping(evidence.about.get("guarantees"))
    acks = guarantees.get("acks", "all")
    if acks != "all" and evidence.name == names.SAW_THEN_LOST:
        yield f"Nor does acks={acks}: a record that a reader saw had been committed."
    if evidence.acts and not any(one.acts == evidence.acts for one in before):
        cuts = all(isinstance(one, Op) and one.f in SPARES_FLUSHED for one in evidence.acts)
        but = ("flush.messages=1 guarantees that acked records are on disk"
               if guarantees.get("flush") == "every" and cuts else
               "no leader was chosen from such copies alone")
        yield f"Data was lost: {first_acts(evidence.acts)}; but {but}."


def promised(evidence: Evidence) -> str:
    """The settings that might have permitted the finding and do not."""
    guarantees = mapping(evidence.about.get("guarantees"))
    asked = OF_READERS if evidence.name in ISOLATED else OF_LOSSES
    asked = OF_PRODUCERS if evidence.name in RETRIED else asked
    settings = []
    for name, key in asked:
        value = guarantees.get(name)
        if value is not None:
            switched = isinstance(value, bool)
            settings.append(f"{key} {'on' if value else 'off'}" if switched else f"{key}={value}")
    return f"the settings ({', '.join(settings)})" if settings else "the settings"


def note_fact(evidence: Evidence, before: Sequence[Evidence]) -> Iterator[str]:
    """One commonly misread fact that explains this case, if there is one."""
    for fact in relevant_facts(evidence):
        if not any(fact in relevant_facts(one) for one in before):
            thought = FACTS[fact].thought.removesuffix(".")
            yield f"Many believe that {thought[0].lower()}{thought[1:]} ({fact}). {FACTS[fact].holds}"
            return


def relevant_facts(evidence: Evidence) -> Iterator[str]:
    """The ids of the facts (checkers' FACTS) that this evidence is a case of."""
    event, name = evidence.event, evidence.name
    if evidence.found["class"] != BUG:
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


def why_permitted(evidence: Evidence, before: Sequence[Evidence]) -> str:
    """`Not counted as a bug: permitted by acks: ...`; the meaning only once a run."""
    cause = str(evidence.found.get("permitted_by"))
    head = f"Not counted as a bug: permitted by {cause}"
    if any(one.found.get("permitted_by") == cause for one in before):
        return f"{head}, as described above."
    permission = PERMISSIONS.get(cause)
    sentences = [f"{head}: {permission.means}." if permission else f"{head}."]
    sentences += [f"Here: {first_acts(evidence.acts)}."] if evidence.acts else []
    if cause == "retries" and evidence.about.get("resent"):
        sentences.append("Here: the client's library itself repeated records under another producer id or "
                         "epoch (`resent` in run.json); no broker can recognize such a repeat.")
    if evidence.perhaps:
        sentences.append("Perhaps: without a trace it is unknown whether that covers all of it.")
    sentences.append("With --strict it fails the gate.")
    return " ".join(sentences)


def first_acts(acts: Sequence[Op | TraceLine]) -> str:
    """The first few acts, and how many more."""
    more = [f"and {len(acts) - SHOWN} more"] if len(acts) > SHOWN else []
    return "; ".join([*map(act, acts[:SHOWN]), *more])


def act(one: Op | TraceLine) -> str:
    """`at 2.030 s power_cut n1; n1 lost 5 records (history.jsonl:23)`."""
    if isinstance(one, TraceLine):
        return clause_of(one)
    return f"at {seconds(one.time)} {fault_text(one)} ({line_of(one)})"
