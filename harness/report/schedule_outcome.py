"""Counts the faults that struck a run, by its history, and lists the planned ones that did not.

Rules
1. A strike is a line of the nemesis in the history. The schedule only says what was planned.
2. Acts that mend are no strikes, nor is a failpoint that is armed: what it does when it is reached has a line
   of its own. A planned strike whose moment never came counts as missed (run.json's `missed`).
3. If the run ended early, the rest of the schedule is listed too. In a run that ended normally, an entry
   without a line had no node to act on (a start of all nodes that are down, when none is) and is not
   mentioned.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from floodmark.harness.faults import MENDING, UNSEEN
from floodmark.harness.op import Op
from floodmark.harness.report.case_names import is_kafka, system_text
from floodmark.harness.report.model import Json, Strikes, items
from floodmark.harness.report.phrases import many
from floodmark.harness.report.safe_text import harmless
from floodmark.harness.run import DONE
from floodmark.harness.schedule.entry import ACTS, Schedule
from floodmark.harness.spec import RunPlan

if TYPE_CHECKING:
    from floodmark.nemesis.scenario import Scenario

NO_STRIKES = ACTS | MENDING | UNSEEN


def strikes_of(ops: Iterable[Op], about: Json) -> Strikes:
    """Counts the strikes by the nemesis's ops and run.json."""
    struck, failed = Counter[str](), Counter[str]()
    for op in ops:
        struck[op.f] += op.f not in NO_STRIKES
        failed[op.f] += bool((op.fault or {}).get("error"))
    planned = [str(entry.get("f")) if isinstance(entry, Mapping) else "?"
               for entry in items(about, "schedule")]
    positions = [position for position in items(about, "missed")
                 if type(position) is int and 0 <= position < len(planned)]
    missed = Counter(f for f in (planned[position] for position in positions) if f not in NO_STRIKES)
    left = Counter(f for f in planned if f not in NO_STRIKES) - struck - missed
    return Strikes(struck=+struck, failed=+failed, missed=missed,
                   left=left if about.get("ended") != DONE else {})


def strikes_text(strikes: Strikes) -> str:
    """`3 kill, 2 pause; missed because the moment never came: 8 kill`. Empty if nothing was planned."""
    counts = {"": strikes.struck, "failed half-way: ": strikes.failed,
              "missed because the moment never came: ": strikes.missed,
              "not begun when the run ended: ": strikes.left}
    parts = [head + ", ".join(f"{number} {f}" for f, number in sorted(them.items()) if number)
             for head, them in counts.items() if them]
    return "; ".join(parts if strikes.struck or not parts else ["nothing", *parts])


def missed_entries_text(schedule: Schedule, about: Mapping[str, Any]) -> list[str]:
    """Lines about each missed entry of a run that was just made, with the reason."""
    return [line for position in about["missed"] for line in (
        f"entry {position} of the schedule was missed: "
        f"{' '.join((schedule[position].f, *schedule[position].nodes))}",
        *missed_moment_text(about["missed_words"].get(str(position), {}), indent=2))]


def missed_steps_text(scenario: "Scenario", about: Json) -> str | None:
    """Lines on the steps whose moments never came: the step in the file, and what was seen instead."""
    positions = about["missed"]
    if not positions:
        return None
    numbers = sorted({scenario.lines[position] for position in positions})
    lines = [f"missed: {scenario.source.name} line {', '.join(map(str, numbers))}"]
    for position in positions:
        lines.append(f"  line {scenario.lines[position]}: {scenario.written[position]}")
        lines += missed_moment_text(about.get("missed_words", {}).get(str(position), {}), indent=4)
    return "\n".join(map(harmless, lines))


def missed_moment_text(words: Mapping[str, Any], *, indent: int = 0) -> list[str]:
    """What was waited for, what was seen instead, and the likely reasons; empty if there are none."""
    if "waited_for" not in words:
        return []
    heads = (("waited for", [words["waited_for"]]), ("seen", items(words, "seen")),
             ("likely", items(words, "likely")))
    return [f"{'':{indent}}{'' if number else head:<12}{line}"
            for head, lines in heads for number, line in enumerate(lines)]


def plan_text(plan: RunPlan) -> str:
    """The text printed before a run: its plan and its folder."""
    strikes = sum(entry.f not in NO_STRIKES for entry in plan.schedule)
    nothing = f"\nno fault will strike, so this run proves little: {plan.unstruck}" if plan.unstruck else ""
    about = {"cluster": plan.cluster.name, "nodes": list(plan.cluster.nodes), "system": plan.cluster.system}
    rules = f"rules {plan.spec.rules}, " if plan.spec.rules and not is_kafka(about) else ""
    return (f"{system_text(about)}, {rules}seed {plan.seed}, "
            f"{plan.spec.duration:g} s, {many(strikes, 'fault')} planned; folder {plan.folder}{nothing}")
