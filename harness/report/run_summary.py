"""Says in a few words what a run tested, what struck it, and how it came out, with which every report begins.
`run`, `check`, `rejudge`, `show`, `scenario`, `demo`, `reproduce`, campaigns and the reports
for CI servers have them from here, so that headings, counts, test cases and exit codes agree.

What it tested: a name that CI servers use as the test case's, so it is the same in every campaign
1. A name is made of what was asked for: the scenario or the nemeses, the cluster, the rules, the workload and
   its guarantees; for an imported history, its file's name. It never contains what changes from run to run:
   no seed, time, id or folder.
2. Runs of the same name in one report are numbered: the first has the plain name, then come #2, #3.
3. A run whose run.json cannot be read is named UNREADABLE.

What struck it
4. A strike is a line of the nemesis in the history. The schedule only says what was planned.
5. Acts that mend are no strikes, nor is a failpoint that is armed: what it does when it is reached has a line
   of its own. A planned strike whose moment never came counts as missed (run.json's `missed`).
6. If the run ended early, the rest of the schedule is listed too. In a run that ended normally, an entry
   without a line had no node to act on (a start of all nodes that are down, when none is) and is not
   mentioned.

The outcome: one word and an exit code
7. A bug comes before everything else. A finding that --allow names is none; with --strict a permitted one is.
8. Next are failures of the run itself, which no option allows: it was interrupted, it ended early (for
   example because a broker never became ready), nothing could be judged, or the verdict could not be written.
   A broker that was ready and ended by itself is the cluster's bug: the judge's finding broker-died.
9. Next is unknown. The rest is valid, or let through by an option, which is never called valid.
10. Where checks were not made because the system does not show their data, the word says how many were.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from floodmark.checkers.laws.finding_names import MADE
from floodmark.harness.faults import FAULTS, MENDING, UNSEEN
from floodmark.harness.op import Op
from floodmark.harness.report.model import Json, Strikes, items, mapping, text
from floodmark.harness.report.phrases import number_of
from floodmark.harness.report.safe_text import escape_controls
from floodmark.harness.run import DONE, INTERRUPTED
from floodmark.harness.schedule.moments import ACTS, Schedule
from floodmark.harness.spec import RunPlan
from floodmark.harness.verdict import BUG, EXIT_HARNESS, EXIT_INVALID, EXIT_UNKNOWN, EXIT_VALID, Policy
from floodmark.nemesis.scenario import Scenario

UNREADABLE = "a run that cannot be read"
# The keys of run.json that say what was asked for: a scenario and its row, or the nemeses, or a schedule
# file.
SCENARIO, ROW, NEMESIS, SCHEDULE_FILE = ASKED = ("scenario", "row", "nemesis", "schedule_file")
CHARS = 200
FORMS = {"kraft": "KRaft", "zookeeper": "ZooKeeper"}  # by run.json's `system.form`


def case_name(about: Json | None) -> str:
    """`scenario double-failover on high-watermark, local cluster of 3`;
    `nemesis crash,cut, local cluster of 3, kip-320, workload log, acks=all, min.insync.replicas=2`."""
    if about is None:
        return UNREADABLE
    file = text(mapping(about, "imported"), "file")
    scenario, on = text(about, SCENARIO), text(about, ROW) or text(about, "rules")
    if file:
        parts = [f"imported {file}", *guarantee_texts(about)]
    elif scenario:
        parts = [f"scenario {scenario}{f' on {on}' if on else ''}", system_text(about)]
    else:
        workload = text(about, "workload")
        parts = [nemesis_text(about), system_text(about), *rules_text(about),
                 *([f"workload {workload}"] if workload else []), *guarantee_texts(about)]
    return ", ".join(parts + (["reproduction"] if about.get("reproduces") and not file else []))[:CHARS]


def system_text(about: Json) -> str:
    """The cluster under test: `Apache Kafka 4.3.1, KRaft, 3 brokers`, `local cluster of 3`."""
    nodes, where = about.get("nodes"), text(about, "cluster") or "some"
    size = len(nodes) if isinstance(nodes, list) else "?"
    if not is_kafka(about):
        return f"{where} cluster of {size}"
    system = about["system"]
    form = FORMS.get(text(system, "form"), "")
    return ", ".join(filter(None, (f"Apache Kafka {text(system, 'version') or '?'}", form,
                                   f"{size} brokers{'' if where == 'local' else f' ({where})'}")))


def is_kafka(about: Json) -> bool:
    """Whether Apache Kafka was tested: its version says what it does, not run.json's `rules`."""
    return mapping(about, "system").get("name") == "kafka"


def nemesis_text(about: Json) -> str:
    """The nemeses or the schedule that was asked for; if run.json has neither, the faults planned."""
    if text(about, SCHEDULE_FILE):
        return f"schedule {text(about, SCHEDULE_FILE)}"
    asked, schedule = text(about, NEMESIS), about.get("schedule")
    if not asked and isinstance(schedule, list):
        planned = {str(entry.get("f")) for entry in schedule if isinstance(entry, dict)}
        asked = ",".join(sorted(planned & FAULTS.keys() - ACTS - MENDING))
    return f"nemesis {asked}" if asked not in ("", "none") else "no nemesis"


def rules_text(about: Json) -> list[str]:
    """The protocol generation, with the bugs and switches that were put into it."""
    if is_kafka(about) or not text(about, "rules"):
        return []
    one = next(iter(mapping(about, "config").values()), None)
    extra = [text(one, key) for key in ("floodmark.bugs", "floodmark.switches")
             ] if isinstance(one, dict) else []
    return [" ".join([text(about, "rules"), *filter(None, extra)])]


def guarantee_texts(about: Json) -> list[str]:
    """The settings that decide what is guaranteed, by Kafka's keys."""
    promised = mapping(about, "guarantees")
    texts = [f"{key}={promised[name]}" for name, key in (
        ("acks", "acks"), ("min_insync_replicas", "min.insync.replicas")) if name in promised]
    return texts + (["unclean elections allowed"] if promised.get("unclean_leader_election") else [])


def numbered(names: Iterable[str]) -> list[str]:
    """The names, made unique: the second of a name becomes `NAME #2`."""
    seen, unique = Counter[str](), []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return unique


# -- what struck it -----------------------------------------------------------------------------------------

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


def missed_steps_text(scenario: Scenario, about: Json) -> str | None:
    """Lines on the steps whose moments never came: the step in the file, and what was seen instead."""
    positions = about["missed"]
    if not positions:
        return None
    numbers = sorted({scenario.lines[position] for position in positions})
    lines = [f"missed: {scenario.source.name} line {', '.join(map(str, numbers))}"]
    for position in positions:
        lines.append(f"  line {scenario.lines[position]}: {scenario.written[position]}")
        lines += missed_moment_text(about.get("missed_words", {}).get(str(position), {}), indent=4)
    return "\n".join(map(escape_controls, lines))


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
    why = plan.no_faults_reason
    nothing = f"\nno fault will strike, so this run proves little: {why}" if why else ""
    about = {"cluster": plan.cluster.name, "nodes": list(plan.cluster.nodes), "system": plan.cluster.system}
    rules = f"rules {plan.spec.rules}, " if plan.spec.rules and not is_kafka(about) else ""
    return (f"{system_text(about)}, {rules}seed {plan.seed}, "
            f"{plan.spec.duration:g} s, {number_of(strikes, 'fault')} planned; folder {plan.folder}{nothing}")


# -- the outcome --------------------------------------------------------------------------------------------

LISTS = ("died", "schedule")  # keys of run.json that reports need and the judge does not

INVALID, HARNESS, CUT_SHORT = "invalid", "failed in the harness", "interrupted"
UNKNOWN, LET_THROUGH, VALID = "unknown", "let through", "valid"
EXITS: Mapping[str, int] = {  # the worst first
    INVALID: EXIT_INVALID, HARNESS: EXIT_HARNESS, CUT_SHORT: EXIT_HARNESS, UNKNOWN: EXIT_UNKNOWN,
    LET_THROUGH: EXIT_VALID, VALID: EXIT_VALID,
}
_COLOURS = {EXIT_INVALID: "red", EXIT_HARNESS: "red", EXIT_UNKNOWN: "yellow", EXIT_VALID: "green"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """The outcome of one run."""

    kind: str  # one of EXITS
    word: str  # the kind, with the judge's result if it differs
    harness: tuple[str, ...] = ()  # failures of the run itself, a sentence each

    @property
    def code(self) -> int:
        return EXITS[self.kind]

    @property
    def heading(self) -> str:
        """The word in its colour, a bug in capitals."""
        word = self.word.replace(INVALID, INVALID.upper(), 1) if self.kind == INVALID else self.word
        return click.style(word, fg=_COLOURS[self.code], bold=True)


def ruling(verdict: Json, about: Json | None, policy: Policy | None = None, *,
           failed: Iterable[str] = ()) -> Ruling:
    """The outcome by a verdict and run.json (None: missing). failed: further failures of the run itself."""
    policy = policy or Policy()
    harness = (*harness_failures(verdict, about), *failed)
    judged = VALID if verdict.get("valid") is True else INVALID if verdict.get("valid") is False else UNKNOWN
    if any(fails(found, policy) for found in verdict.get("findings") or ()):
        word = INVALID if judged == INVALID else f"{INVALID} by --strict"
        return Ruling(kind=INVALID, word=word, harness=harness)
    if harness:
        kind = CUT_SHORT if str((about or {}).get("ended")).startswith(INTERRUPTED) else HARNESS
        return Ruling(kind=kind, word=f"{kind} (judged {judged})" if verdict.get("counts") else kind,
                      harness=harness)
    kind, word = VALID, VALID
    if (verdict.get("unknown") or judged == UNKNOWN) and not policy.allow_unknown:
        kind, word = UNKNOWN, UNKNOWN if judged == UNKNOWN else f"{UNKNOWN} (invalid let through)"
    elif judged != VALID:
        kind, word = LET_THROUGH, f"{judged}, {LET_THROUGH}"
    left_out = {name for entry in verdict.get("not_made") or () for name in entry["names"]} & {*MADE}
    made = f", {len(MADE) - len(left_out)} of {len(MADE)} checks made" if left_out else ""
    return Ruling(kind=kind, word=word + made)


def fails(found: Json, policy: Policy) -> bool:
    """Whether a group of findings fails the gate."""
    return found["name"] not in policy.allow and (policy.strict or found["class"] == BUG)


def has_lists(about: Json) -> bool:
    return all(isinstance(about.get(name) or [], list) for name in LISTS)


def harness_failures(verdict: Json, about: Json | None) -> tuple[str, ...]:
    """The failures of the run itself, a sentence each; they say nothing about the cluster."""
    if not verdict.get("counts"):
        return ("nothing was judged",)
    if about is None or not has_lists(about):
        return (f"its run.json is missing, or has no list where there should be: {', '.join(LISTS)}",)
    ended = about.get("ended")
    return (f"the run ended early: {ended}",) if ended not in (None, DONE) else ()


def summary(rulings: Iterable[Ruling]) -> str:
    """`20 runs: 14 invalid, 3 unknown, 3 valid`."""
    kinds = [ruling.kind for ruling in rulings]
    return f"{number_of(len(kinds), 'run')}: " + ", ".join(
        f"{kinds.count(kind)} {kind}" for kind in EXITS if kind in kinds)
