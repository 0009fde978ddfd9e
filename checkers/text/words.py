"""Writes the text of a finding from its numbers: what happened, when, and which nodes have what now."""

import re
from collections.abc import Mapping
from typing import Any

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.text import cycle_words

Row = Mapping[str, Any]  # of checkers.laws.tables.FINDINGS, or what the driver knows of its own findings
# Of a broker's last words: the lines; characters of the first, which may have its last errors, and of others.
LAST_LINES, FIRST_CHARS, LAST_CHARS = 3, 600, 200
_OF_HISTORY, _OF_TRACE = re.compile(r" \(index [\d, ]+\)"), re.compile(r" \([^()]+, seq \d+ of its trace\)")


def text_of(name: str, row: Row) -> str:
    """One paragraph about one finding."""
    if name in cycle_words.SENTENCES:
        return cycle_words.SENTENCES[name](row)
    sentence = _SENTENCES.get((name, row.get("how"))) or _SENTENCES.get((name, None))
    return of_registered(name, row) if sentence is None else sentence.format_map({**row, **phrases(row)})


def of_registered(name: str, row: Row) -> str:
    """The text of another distribution's finding, from the columns that it has."""
    known = ("partition", "offset", "value", "process")
    where = " ".join(f"{key} {row[key]}" for key in known if row.get(key) is not None)
    nodes = f" on {', '.join(row['nodes'])}" if row.get("nodes") else ""
    how = f": {row['how']}" if row.get("how") else ""
    return f"{name}: {where or 'the run'}{nodes}{how}{cycle_words.lines(row)}."


def phrases(row: Row) -> dict[str, str]:
    """Parts of sentences that several findings use, or that depend on which columns are known."""
    nodes, ops, seen = row.get("nodes") or [], row.get("ops") or [], row.get("seen")
    place = f"partition {row.get('partition')} offset {row.get('offset')}"
    of_epoch = "" if row.get("epoch") is None else f" of epoch {row['epoch']}"
    holders = f"held now by {', '.join(nodes)}" if nodes else "held by no replica"
    at_offset = "" if row.get("offset") is None else f" at offset {row['offset']}"
    return {
        "place": place,
        "record": f"the committed record{of_epoch} at {place}",
        "who": ", ".join(nodes),
        "elected": ", ".join(nodes) or "Nobody",
        "lack": "lacks" if len(nodes) == 1 else "lack",
        "holders": holders,
        "if_held": f"; it is {holders}" if nodes else "",
        "went_on": "were told that the log goes on above it" if seen is None else f"went on to offset {seen}",
        "above_hw": f"when the highest HW was {seen}",
        "lines": cycle_words.lines(row),
        "where_seen": f"was read{cycle_words.lines(row)}" if ops else f"is {holders}",
        "acked": f"{at_offset} (index {ops[-1]})" if ops else at_offset,
        "in_its_place": "a record that is not ours" if seen is None else f"{seen}",
        "gone": "no replica holds it" if seen is None else f"none of {seen} nodes knows its topic any more",
        "log_end": "before it begins" if seen is None else f"at {seen}",
        "trace_line": f" ({row.get('node')}, seq {row.get('seq')} of its trace)",
        "last_words": last_words(row.get("last_words")),
    }


def without_lines(sentence: str, *, of_history: bool = True, of_trace: bool = True) -> str:
    """The sentence without the lines that it names in brackets."""
    sentence = _OF_HISTORY.sub("", sentence) if of_history else sentence
    return _OF_TRACE.sub("", sentence) if of_trace else sentence


def last_words(output: object) -> str:
    """How a broker ended (the first line) and the end of its output, if run.json has it."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] if isinstance(output, str) else []
    if len(lines) > LAST_LINES:
        lines = [lines[0], "...", *lines[1 - LAST_LINES :]]
    shown = [*(line[:FIRST_CHARS] for line in lines[:1]), *(line[-LAST_CHARS:] for line in lines[1:])]
    return f"; its last words: {' | '.join(shown)}" if lines else "."


_ACKED = "The send of {value} to partition {partition} was acked{acked}, but "
_TORN = "A transaction took effect in part{lines}: {seen} is committed, and "
_CANDIDATE = "{who}, a candidate for leadership, lacks {record}: its log "
_RECOVERED = (
    "{who} started with a log of partition {partition} that ends at {offset}, though no fault had lost data "
    "and it had truncated nothing: "
)
_ISR = "The ISR of partition {partition} "
# By the finding's name and its `how`; None: whatever that is.
_SENTENCES: dict[tuple[str, str | None], str] = {
    (names.LOST_WRITE, "moved"): _ACKED + "the leader's final log holds it at offset {seen} instead.",
    (names.LOST_WRITE, "overwritten"): _ACKED + "the leader's final log holds {in_its_place} there; it is "
    "{holders}.",
    (names.LOST_WRITE, "orphaned"): _ACKED + "the leader's final log does not hold it; it is {holders}.",
    (names.LOST_WRITE, "gone"): _ACKED + "{gone}.",
    (names.LOST_WRITE, "unread"): _ACKED + "the reads that {went_on} did not return it{if_held}.",
    (names.LOST_WRITE, "log-start"): _ACKED + "the log, which keeps everything, now begins at offset {seen}.",
    (names.DIVERGED, None): "At {place} {who} and the others hold different records.",
    (names.EPOCH_LINEAGE, "two records"): "Epoch {seen} names two records at {place} ({who}).",
    (names.EPOCH_LINEAGE, "falls"): "In the log of {who} the epoch falls below {seen} at {place}.",
    (names.EPOCH_LINEAGE, "cache"): "The leader-epoch cache of {who} says epoch {seen} of {place}, the "
    "record says another.",
    (names.EPOCH_LINEAGE, "cache above LEO"): "The leader-epoch cache of {who} starts epoch {seen} at "
    "{place}, above LEO.",
    (names.MALFORMED_LOG, "gap"): "The log of {who} jumps from offset {seen} to {offset} in partition "
    "{partition}.",
    (names.MALFORMED_LOG, "doubled"): "The log of {who} has {place} twice.",
    (names.MALFORMED_LOG, "disordered"): "The log of {who} has offset {offset} after {seen} in partition "
    "{partition}.",
    (names.MALFORMED_LOG, "crc"): "The bytes that {who} keeps at {place} do not fit their CRC.",
    **{
        (names.MALFORMED_LOG, why): "A final reader could not read the batch at {place}"
        f"{{lines}}: {words}, each time, on new connections."
        for why, words in (
            ("checksum", "its checksum is wrong"),
            ("magic", "its magic is of no format"),
            ("length", "its length and its records do not fit"),
            (None, "it is damaged"),
        )
    },
    (names.MALFORMED_LOG, "hw"): "The HW of {who} is {seen}, above its LEO {offset}, in partition "
    "{partition}.",
    (names.MALFORMED_LOG, "leo"): "{who} says LEO {offset}, its log ends {log_end}, in partition "
    "{partition}.",
    (names.MALFORMED_LOG, "log_start"): "{who} says log start {offset}, its log begins at {seen}, in "
    "partition {partition}.",
    (names.UNDER_REPLICATED, None): "{who}, in the ISR, {lack} the committed record at {place}.",
    (names.UNSEEN, None): "The acked {value} stands at {place} of the leader's log, below the HW, and no "
    "final read returned it{lines}.",
    (names.INCONSISTENT_OFFSETS, None): "Clients saw both {value} and {seen} at {place}{lines}.",
    (names.DUPLICATE, None): "The value {value} is at offsets {offset} and {seen} of partition "
    "{partition}{lines}.",
    (names.PHANTOM, None): "The value {value} was never sent to partition {partition}, yet it {where_seen}.",
    (names.G1A, None): "The send of {value} failed for certain, yet it was read or stands committed at "
    "{place}{lines}.",
    (names.G1A, "aborted"): "The leader's final log has {value} only as aborted, at {place}, yet a reader "
    "of committed records got it from there{lines}.",
    (names.TORN_TRANSACTION, "aborted"): _TORN + "in the leader's final log {value}, at {place}, is only "
    "there as aborted.",
    (names.TORN_TRANSACTION, "absent"): _TORN + "the leader's final log of partition {partition} does not "
    "hold {value}.",
    (names.TORN_TRANSACTION, "passed"): _TORN + "{value}, acked at {place}, was passed over and never read.",
    (names.SAW_THEN_LOST, None): "{value} was read at {place}{lines}; the leader's final log does not hold "
    "it there.",
    (names.NONMONOTONIC_SEND, None): "Process {process} was acked offset {offset} of partition {partition} "
    "after offset {seen}{lines}.",
    (names.INT_NONMONOTONIC_SEND, None): "Inside one op, offset {offset} of partition {partition} came "
    "after offset {seen}{lines}.",
    (names.REALTIME_ORDER, None): "The send of {value} began after offset {seen} of partition {partition} "
    "had been acked, and got offset {offset}{lines}.",
    (names.NONMONOTONIC_POLL, None): "Process {process} read offset {offset} of partition {partition} after "
    "offset {seen}{lines}.",
    (names.INT_NONMONOTONIC_POLL, None): "Inside one poll, offset {offset} of partition {partition} came "
    "after offset {seen}{lines}.",
    (names.POLL_SKIP, None): "Process {process} read offset {offset} of partition {partition} next after "
    "offset {seen} and passed over records{lines}.",
    (names.INT_POLL_SKIP, None): "Inside one poll, offset {offset} of partition {partition} came next after "
    "offset {seen}: records were passed over{lines}.",
    (names.END_OFFSET_REGRESSED, None): "Process {process} got end offset {offset} of partition "
    "{partition}, after it had seen that it is at least {seen}{lines}.",
    (names.END_OFFSET_REGRESSED, "behind-ack"): "Process {process} got end offset {offset} of partition "
    "{partition}, though a record at or above it had been acked in that epoch before it asked{lines}.",
    (names.BROKER_DIED, None): "The process of {who} ended by itself after it had been ready, and no fault "
    "in force explains it{last_words}",
    (names.STUCK, None): "{timeout_s} s after mending, with every node up, partition {partition} still had "
    "{how}.",
    (names.HW_REGRESSED, None): "The HW of {who}, leading partition {partition}, fell from {seen} to "
    "{offset} in one epoch{trace_line}.",
    (names.EPOCH_REGRESSED, None): "{who} took a role in epoch {how} of partition {partition} after one in "
    "epoch {seen}{trace_line}.",
    (names.RECOVERY_LOSS, "clean"): _RECOVERED + "its log had ended at {seen} when it stopped "
    "orderly{trace_line}.",
    (names.RECOVERY_LOSS, "fetch"): _RECOVERED + "it had asked a leader for offset {seen}, so it held all "
    "below{trace_line}.",
    (names.RECOVERY_LOSS, "ack"): _RECOVERED + "it had acked all below {seen}{trace_line}.",
    (names.READ_ABOVE_HW, None): "Process {process} was shown {value} at {place}, {above_hw}{lines}.",
    (names.END_OFFSET_AHEAD, None): "Process {process} got end offset {offset} of partition {partition}, "
    "{above_hw}{lines}.",
    (names.UNCLEAN_ELECTION, None): "{elected} was elected leader of partition {partition} in epoch {seen} "
    "from outside the ISR{trace_line}, though unclean.leader.election.enable is off and nothing had asked "
    "for an unclean election.",
    (names.TWO_LEADERS, None): "{who} both acted as leader of partition {partition} in epoch "
    "{seen}{trace_line}.",
    (names.ACK_RULE, "hw"): "{node} acked {place} with acks=all while the HW was {seen}{trace_line}.",
    (names.ACK_RULE, "isr"): "{node} acked {place} with acks=all with an ISR of {who}, fewer than the "
    "{seen} of min.insync.replicas{trace_line}.",
    (names.ACK_RULE, "member"): "{node} acked {place} with acks=all before {who} of the ISR had appended "
    "the record{trace_line}.",
    (names.UNSAFE_ISR, "behind"): _ISR + "took in {who}, whose LEO was {offset}, below {seen}: the HW, or "
    "the start of the leader's epoch{trace_line}.",
    (names.UNSAFE_ISR, "leader"): _ISR + "does not hold its leader {who}{trace_line}.",
    (names.UNSAFE_ISR, "order"): _ISR + "came with partition epoch {seen}, which is not above the one "
    "before{trace_line}.",
    (names.UNSAFE_ISR, "smaller"): _ISR + "was counted by its leader without {who}, which the controller "
    "had in it{trace_line}.",
    (names.LEADER_INCOMPLETE, None): "{who} became the leader without {record}: a leader's HW had come to "
    "{seen}{trace_line}.",
    (names.CANDIDATE_INCOMPLETE, "other"): _CANDIDATE + "holds one of epoch {seen} instead{trace_line}.",
    (names.CANDIDATE_INCOMPLETE, None): _CANDIDATE + "ends below the HW of {seen} that a leader has "
    "had{trace_line}.",
    (names.UNSAFE_TRUNCATION, None): "{who} truncated its log to {seen} and cut {record}, which it "
    "held{trace_line}.",
}
