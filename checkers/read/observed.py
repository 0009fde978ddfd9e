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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from floodmark.checkers.laws.finding_names import FILES, LAWS, OF_THE_TRACE
from floodmark.harness.verdict import NotMade

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
    def files_lacked(self) -> frozenset[str]:
        shown = {"dumps": self.dumps, "replicas.jsonl": self.replicas}
        return frozenset(name for name in FILES if not shown[name])

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
    files, events = observes.files_lacked, set[str]()
    of_files, of_trace = list[str](), list[str]()
    for name, law in sorted(LAWS.items()) if observes.flaw is None else ():
        lacked = law.needs - FILES - (law.needs if observes.events is None else observes.events)
        events |= lacked
        if lacked:
            of_trace.append(name)
        elif law.needs & files and not (observes.imported and law.imports_show):
            of_files.append(name)
    why = {f"this system shows no {' and no '.join(sorted(files))}": of_files,
           "this system has no trace" if observes.traceless else
           f"this system's trace has no {', '.join(sorted(events))}": of_trace}  # fmt: skip
    return tuple(NotMade(names=tuple(names), reason=reason) for reason, names in why.items() if names)


def needs_of(name: str) -> str:
    """What a check needs, in a sentence; empty where the history is enough."""
    needs = LAWS[name].needs
    if events := sorted(needs - FILES):
        return f"Of the trace {', '.join(events)}{'; and replicas.jsonl' if needs & FILES else ''}."
    besides = "; or an imported history" if LAWS[name].imports_show else ""
    return f"Dumps of the logs and replicas.jsonl{besides}." if needs else ""


def silent_of_trace(observes: Observes) -> tuple[str, ...]:
    """The trace's checks that claim nothing, because events that are not recorded may excuse."""
    left_out = {name for entry in not_made(observes) for name in entry.names}
    return tuple(name for name in OF_THE_TRACE if observes.flaw is not None or name in left_out)
