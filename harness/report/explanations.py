"""Explanations of the findings, the permissions and the facts, at length and on one line each, for lists and
tables."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from inspect import getdoc

from floodmark.checkers.read.observed import needs_of
from floodmark.checkers.text.explain import EXPLANATIONS
from floodmark.checkers.text.semantics import FACTS, PERMISSIONS
from floodmark.harness.registered import CHECK, Registered, registered

WIDTH = 100
HEAD = 11
PERMITS: Mapping[str, str] = {
    "acks": "fewer acks than all of the ISR",
    "unclean.leader.election.enable": "a leader from outside the ISR",
    "fault budget": "power cuts and bad disks on too many copies",
    "retries": "retries without idempotence",
    "subscribe": "a consumer group that moves partitions",
    "isolation": "an isolation level that does not separate transactions",
    "internal topics": "losses of what the transactions' coordinator knew",
}
LINE = 82  # columns of a meaning in the list, beside the names' 30
SHORT_MEANINGS: Mapping[str, str] = {
    "G-single": "a transaction saw one half of another and not the other half; Kafka permits it",
    "G0": "the writes of two transactions overwrite or interleave with each other",
    "G0-process": "the order of records contradicts the order of a process's ops",
    "G0-realtime": "the order of records contradicts the order in time",
    "G1a": "a send certainly failed, and its value was read or is in the log",
    "G1c": "ops read each other's records in a cycle",
    "G1c-process": "who read whose value contradicts the order of a process's ops",
    "G1c-realtime": "who read whose value contradicts the order in time",
    "G2-item": "transactions missed one another's records in a cycle; Kafka permits it",
    "ack-rule": "an acks=all send was acked before the ISR had it, or with too small an ISR",
    "broker-died": "a broker that had been ready ended by itself",
    "candidate-incomplete": "a node that could be elected lacks a committed record",
    "diverged": "two replicas hold different records at one offset",
    "duplicate": "one value is, or was read, at two offsets",
    "end-offset-ahead": "a client got an end of the partition that is above its HW",
    "end-offset-regressed": "one client saw the end of a partition fall",
    "epoch-lineage": "an epoch and an offset name two records, or epochs fall, or the epoch cache is wrong",
    "epoch-regressed": "a node took a role in an epoch below an earlier one",
    "hw-regressed": "a leader's HW fell inside one epoch",
    "inconsistent-offsets": "clients saw two values at one offset",
    "int-nonmonotonic-poll": "the offsets of a partition do not rise within one poll",
    "int-nonmonotonic-send": "a later send of one op got a lower offset",
    "int-poll-skip": "one poll skipped records that are in the log",
    "leader-incomplete": "a leader began without records that were committed before",
    "lost-write": "a send was acked and its record is not in the leader's final log",
    "malformed-log": "a log has a gap, a doubled offset, bad bytes, or contradicts its own ends",
    "nonmonotonic-poll": "a consumer got records again that it had got before",
    "nonmonotonic-send": "a process's later send got a lower offset than an earlier one",
    "phantom": "a value that nobody sent was read, or is in a log",
    "poll-skip": "a consumer's next poll skipped records that are in the log",
    "precommitted-read": "a transaction read a record of its own before it committed",
    "read-above-hw": "a reader got a record above every HW",
    "realtime-order": "a send after an ack got a lower offset than the acked record",
    "recovery-loss": "a replica started without records that it certainly had on disk",
    "saw-then-lost": "a reader got a record that is not in the final log",
    "stuck": "after mending, a partition had no leader or acked nothing",
    "torn-transaction": "one record of a transaction is committed, and another is not",
    "two-leaders": "two nodes acted as leader of one epoch",
    "unclean-election": "a leader from outside the ISR, which no setting allowed and nobody asked for",
    "under-replicated": "a member of the ISR lacks a record below the leader's HW",
    "unfit": "no finding: the run did not do what was asked",
    "unsafe-isr": "a replica joined the ISR too early, or leader and controller disagree about it",
    "unsafe-truncation": "a replica truncated a committed record that it had",
    "unseen": "an acked record is in the log, and no final read returned it",
}

Part = tuple[str, str]


def short_meaning(name: str) -> str:
    """The meaning of a finding on one line."""
    meaning = EXPLANATIONS[name].means
    return SHORT_MEANINGS.get(name) or textwrap.shorten(meaning.split(". ")[0], LINE, placeholder=" ...")


def listed() -> Iterator[str]:
    """Yields every name that can be explained, with its meaning on one line."""
    every = {**{name: short_meaning(name) for name in sorted(EXPLANATIONS)},
             **{check.name: f"a check of {check.distribution}" for check in registered(CHECK)},
             **{name: f"what permits some findings: {permits}" for name, permits in PERMITS.items()},
             f"S1 to S{len(FACTS)}": "what is often misunderstood about Kafka, and the facts"}
    width = max(map(len, every))
    yield from (f"{name:<{width}}  {meaning}" for name, meaning in every.items())
    yield ""
    yield "More of each: floodmark explain NAME"


def parts_of(name: str) -> list[Part] | None:
    """The parts of an explanation; None for an unknown name."""
    if name in EXPLANATIONS:
        one = EXPLANATIONS[name]
        parts = [("means", one.means), ("near miss", one.near_miss), ("the law", f"{one.law}."),
                 ("permitted", one.permitted)]
        if needs := needs_of(name):
            parts += [("needs", f"{needs} If run.json's `observes` has less, the check is not made.")]
        return [*parts, *facts(one.facts)]
    if name in PERMISSIONS:
        return [("permits", f"{PERMISSIONS[name].means}."),
                ("not with", "check --strict, which counts every permitted finding as a bug."),
                *facts(PERMISSIONS[name].facts)]
    if name in FACTS:
        return [("thought", FACTS[name].thought), ("in fact", FACTS[name].holds)]
    return [part for check in registered(CHECK) if check.name == name for part in of_check(check)] or None


def of_check(check: Registered) -> Iterator[Part]:
    """Yields the parts about a check of another distribution, with its docstring."""
    yield "brought by", f"{check.distribution}, as {check.entry.value}"
    try:
        law: object = check.entry.load()
    except Exception as error:
        yield "fails", f"it cannot be loaded: {type(error).__name__}: {error}"
        return
    if isinstance(law, str):
        yield "a SELECT", " ".join(law.split())
    else:
        yield "means", " ".join((getdoc(law) or "its function has no docstring").split())


def facts(numbers: Iterable[str]) -> Iterator[Part]:
    """Yields the facts with these numbers, and what is often misunderstood."""
    for number in numbers:
        yield f"fact {number}", f'Not so: "{FACTS[number].thought}" {FACTS[number].holds}'


def facts_text(parts: Iterable[Part]) -> Iterator[str]:
    """Yields the parts' text after their heads, wrapped at WIDTH."""
    for head, text in parts:
        first = f"  {head:<{HEAD}}"
        yield textwrap.fill(text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first),
                            break_on_hyphens=False)
