"""What a system can show at all (run.json's `observes`), and which checks cannot be made without the rest.

Rules
1. Absent, or a part of it absent: the system can show everything, and a run without a trace is still fine.
2. What is not promised is not used, even if it is there. A check that needs it is not made: the verdict names
   it, and it makes nothing unknown. Findings under its name from promised files still count, except from the
   trace: there the events that are not recorded may be those that excuse.
3. lost-write is always made. If nothing can show a loss the run is unknown (reasons.py).
4. An invalid `observes` promises nothing and excuses nothing: the checks that it may be about are unknown,
   and those of the trace claim nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.checkers.laws import finding_names
from floodmark.harness.verdict import NotMade

# Checks that need the dumps and replicas.jsonl. The others work without, or with less (G1a, duplicate and
# poll-skip then use only what clients saw).
OF_FILES = (
    *finding_names.OF_THE_LOGS, finding_names.UNSEEN, finding_names.SAW_THEN_LOST,
    finding_names.TORN_TRANSACTION,
)  # fmt: skip
OF_IMPORTS = (finding_names.TORN_TRANSACTION,)  # of these, the checks that an imported history alone can show
# Events that show what was committed, who had it, and what permits its loss.
_COMMITTED = frozenset({
    "append", "truncate", "hw", "become_leader", "become_follower", "start", "elect", "isr",
})  # fmt: skip
# events in which a HW first appears
_HIGH_WATERMARKS = frozenset({"hw", "become_leader", "become_follower", "start"})
_LIVES = frozenset({"register", "fence", "unfence"})
# The events that each check of the trace needs: those that show what it looks for, and those that excuse it.
NEEDED_EVENTS: Mapping[str, frozenset[str]] = {
    finding_names.HW_REGRESSED: frozenset({"hw"}),
    finding_names.EPOCH_REGRESSED: frozenset({"become_leader", "become_follower"}),
    finding_names.TWO_LEADERS: frozenset({"append", "hw"}),
    finding_names.ACK_RULE: frozenset({"ack", "append", "start", "become_leader"}),
    finding_names.LEADER_INCOMPLETE: _COMMITTED,
    finding_names.CANDIDATE_INCOMPLETE: _COMMITTED | _LIVES,
    finding_names.UNSAFE_TRUNCATION: _COMMITTED,
    finding_names.UNSAFE_ISR: _COMMITTED | _LIVES | {"ack"},
    finding_names.UNCLEAN_ELECTION: frozenset({"elect"}),
    finding_names.RECOVERY_LOSS: frozenset({"start", "append", "truncate", "fetch", "ack"}),
    finding_names.READ_ABOVE_HW: _HIGH_WATERMARKS,
    finding_names.END_OFFSET_AHEAD: _HIGH_WATERMARKS,
}
EVENTS = frozenset().union(*NEEDED_EVENTS.values())
# These claim nothing below the final log start, which only replicas.jsonl has.
OF_TRACE_AND_REPLICAS = (
    finding_names.LEADER_INCOMPLETE,
    finding_names.CANDIDATE_INCOMPLETE,
    finding_names.UNSAFE_TRUNCATION,
)
ELECTIONS = frozenset({"elect", "isr", "start"})  # who was elected from which copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Observes:
    """What run.json promises can be seen."""

    dumps: bool = True
    replicas: bool = True
    events: frozenset[str] | None = None  # of the trace; None: all, if there is one
    imported: bool = False
    flaw: str | None = None  # the error that makes it unusable

    def shows(self, *events: str) -> bool:
        """Whether the trace, if there is one, must have these events."""
        return self.flaw is None and (self.events is None or self.events.issuperset(events))

    @property
    def traceless(self) -> bool:
        return self.events is not None and not self.events

    @property
    def names_brokers(self) -> bool:
        """Whether every broker surely writes some line."""
        return self.shows("start") or self.shows("append") or self.shows("become_leader", "become_follower")

    @property
    def names_controllers(self) -> bool:
        """Whether some controller surely writes a line."""
        return self.shows("register")


def observes_of(about: Mapping[str, Any]) -> Observes:
    """Read and check it."""
    if "observes" not in about:
        return Observes()
    promised = about["observes"]
    if not isinstance(promised, dict):
        return Observes(flaw="run.json: `observes` is no object")
    for name in ("dumps", "replicas"):
        if not isinstance(promised.get(name, True), bool):
            return Observes(flaw=f"run.json: `{name}` of `observes` is neither true nor false")
    events = promised.get("trace")
    if "trace" in promised and not (isinstance(events, list) and all(isinstance(one, str) for one in events)):
        return Observes(flaw="run.json: `trace` of `observes` is no list of events")
    return Observes(
        dumps=promised.get("dumps", True),
        replicas=promised.get("replicas", True),
        events=None if events is None else frozenset(events),
        imported=isinstance(about.get("imported"), dict),
    )


def not_made(observes: Observes) -> tuple[NotMade, ...]:
    """The checks for which this system gives no input, grouped by reason."""
    return tuple(_not_made(observes))


def needs_of(name: str) -> str:
    """What a check needs, in a sentence; empty where the history is enough."""
    if name not in NEEDED_EVENTS:
        besides = "; or an imported history" if name in OF_IMPORTS else ""
        return f"Dumps of the logs and replicas.jsonl{besides}." if name in OF_FILES else ""
    besides = "; and replicas.jsonl" if name in OF_TRACE_AND_REPLICAS else ""
    return f"Of the trace {', '.join(sorted(NEEDED_EVENTS[name]))}{besides}."


def silent_of_trace(observes: Observes) -> tuple[str, ...]:
    """The trace's checks that claim nothing, because events that are not recorded may excuse."""
    if observes.flaw is not None:
        return finding_names.OF_THE_TRACE
    return tuple(name for name in finding_names.OF_THE_TRACE if is_not_made(observes, name))


def is_not_made(observes: Observes, name: str) -> bool:
    return any(name in entry.names for entry in not_made(observes))


def _not_made(observes: Observes) -> Iterator[NotMade]:
    if observes.flaw is not None:
        return
    lacked = {name: events_lacked(observes, name) for name in finding_names.OF_THE_TRACE}
    of_trace = [name for name, events in lacked.items() if events]
    events = sorted(set().union(*lacked.values()))
    files = [name for name, there in (("dumps", observes.dumps), ("replicas.jsonl", observes.replicas))
             if not there]
    of_files = [name for name in OF_FILES if files and not (observes.imported and name in OF_IMPORTS)]
    if not observes.replicas:
        of_files += [name for name in OF_TRACE_AND_REPLICAS if name not in of_trace]
    if of_files:
        yield NotMade(names=tuple(sorted(of_files)), reason=f"this system shows no {' and no '.join(files)}")
    if observes.traceless:
        yield NotMade(names=tuple(sorted(of_trace)), reason="this system has no trace")
    elif of_trace:
        missing = f"this system's trace has no {', '.join(events)}"
        yield NotMade(names=tuple(sorted(of_trace)), reason=missing)


def events_lacked(observes: Observes, name: str) -> frozenset[str]:
    """The events that a check of the trace needs and cannot have."""
    needed = NEEDED_EVENTS.get(name, EVENTS)
    return frozenset() if observes.events is None else needed - observes.events
