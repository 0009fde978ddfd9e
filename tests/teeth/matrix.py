"""`make teeth`: judges every known-bad rule, and prints the result as a table.

The scenarios are played on the cluster in memory: each row, and each correct broker once more with the
look-alike that must not be flagged. Each row of teeth_table.py is played too, on machines stepped by hand:
with its bug, without it, with the look-alike. Every play is a run folder, and the judge of real runs judges
them. `--readme FILE` puts the table between that file's marks.

    latent    findings of the trace, before a client could see any harm
    manifest  findings of history and logs in the end
    played    by which scenario; or by hand: events stepped from the first send until the first latent
              finding's event, until the first harm
"""

import argparse
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
from memory_trace import attach, write_folder
from simulated_scenarios import ALL, LOOK_ALIKE, look_alikes, played
from teeth_table import ROWS, Row

from floodmark.harness import catalog
from floodmark.harness.run import write_whole
from floodmark.harness.verdict import BUG, Verdict
from floodmark.nemesis.expectations import differences

BEGIN, END = "<!-- teeth: make teeth writes these lines -->", "<!-- end of teeth -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """A row's play on one cluster; `clock` has the number of stepped events at each moment of its trace."""

    folder: Path
    begun: int
    clock: tuple[tuple[int, int], ...]  # (time_ns, steps), ascending


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A row and the verdicts of its three plays."""

    row: Row
    played: ByHand
    harmed: Verdict
    control: Verdict
    look_alike: Verdict

    @property
    def wrong(self) -> list[str]:
        """The differences from the table."""
        missing = [("bug", name) for name in (*self.row.latent, *self.row.manifest)]
        missing += [("permitted", name) for name in self.row.permitted]
        found = {(one.klass, one.name) for one in self.harmed.findings}
        wrong = [f"not found: {name} ({klass})" for klass, name in missing if (klass, name) not in found]
        for which, verdict in (("control", self.control), ("look-alike", self.look_alike)):
            wrong += [f"{which}: {one.name}" for one in verdict.findings if one.klass == BUG]
        return wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the table; a line without cells is a control, which only counts."""

    zoo: str
    who: str
    bugs: Sequence[str]
    title: str
    wrong: Sequence[str]  # the differences from what is expected
    cells: tuple[str, ...]
    flagged: bool  # the broker without the bug was flagged
    alike: bool  # the look-alike was flagged


def play(row: Row, folder: Path, *, control: bool = False, switches: tuple[str, ...] = ()) -> ByHand:
    """Plays the row once, and writes the run folder."""
    cluster = row.cluster(control=control, switches=switches)
    recorder = attach(cluster)
    begun, clock = cluster.steps, []
    cluster.on_step = lambda: clock.append((recorder.time_ns, cluster.steps))
    row.play(cluster)
    write_folder(cluster, folder)
    return ByHand(folder=folder, begun=begun, clock=tuple(clock))


def judged(rows: Sequence[Row], parent: Path) -> list[Judged]:
    """Plays all rows, and judges them in one call."""
    plays = [
        (
            play(row, parent / f"{number}-bug"),
            play(row, parent / f"{number}-control", control=True),
            play(row, parent / f"{number}-look-alike", control=True, switches=(LOOK_ALIKE,)),
        )
        for number, row in enumerate(rows)
    ]
    verdicts = iter(catalog.judge().judge([one.folder for each in plays for one in each]))
    return [
        Judged(row=row, played=each[0], harmed=next(verdicts), control=next(verdicts),
               look_alike=next(verdicts))
        for row, each in zip(rows, plays, strict=True)
    ]  # fmt: skip


# -- the table ----------------------------------------------------------------------------------------------


def table(lines: Sequence[Line]) -> list[str]:
    """The table in Markdown."""
    head = ("known-bad rule", "zoo", "latent", "manifest", "played", "without it")
    rows = sorted((one.zoo, one.who, one.cells) for one in lines if one.cells)
    body = [f"| {who} | {zoo} | {' | '.join(cells)} |" for zoo, who, cells in rows]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *body]


def by_hand(one: Judged) -> Line:
    row, flagged = one.row, bugs_of(one.control)
    return Line(
        zoo=row.zoo, who=who(row.side.rules, row.side.bugs, row.side.switches), bugs=row.side.bugs,
        title=row.name, wrong=one.wrong, flagged=bool(flagged), alike=bool(bugs_of(one.look_alike)),
        cells=(listed(row.latent), listed(row.manifest, row.permitted), f"by hand: {steps(one)}",
               flagged or "no bug found"),
    )  # fmt: skip


def by_scenario(only: str | None, parent: Path) -> list[Line]:
    """A line for each row; those of controls and look-alikes have no cells."""
    parts = [part for part in (*ALL, *look_alikes()) if only is None or only in part.title]
    found = played(parts, parent) if parts else []
    flagged: dict[str, str] = {}  # scenario -> the findings in its controls
    for one, verdict in found:
        if one.part.row.control:
            flagged[one.part.scenario.name] = flagged.get(one.part.scenario.name, "") + bugs_of(verdict)
    lines = []
    for one, verdict in found:
        row, scenario = one.part.row, one.part.scenario
        control = row.control or not (row.harm or row.permitted)
        alike = LOOK_ALIKE in row.switches and row.control
        cells = () if control else (
            listed(sorted(row.latent)), listed(sorted(row.manifest), sorted(row.permitted)),
            f"`{scenario.name}`", flagged.get(scenario.name) or "no bug found",
        )  # fmt: skip
        lines.append(
            Line(
                zoo=scenario.zoo, who=who(row.rules, row.bugs, row.switches), bugs=row.bugs,
                title=one.part.title, wrong=[one.why] if one.why else differences(row, verdict), cells=cells,
                flagged=control and not alike and bool(bugs_of(verdict)),
                alike=alike and bool(bugs_of(verdict)),
            )
        )  # fmt: skip
    return lines


def bugs_of(verdict: Verdict) -> str:
    return ", ".join(sorted({one.name for one in verdict.findings if one.klass == BUG}))


def who(rules: str, bugs: Sequence[str], switches: Sequence[str]) -> str:
    words = [] if bugs and rules == "kip-320" else [f"generation `{rules}`"]
    words += [f"`{bug}`" for bug in bugs]
    return " ".join(words) + (f" ({', '.join(switches)})" if switches else "")


def listed(bugs: Sequence[str], permitted: Sequence[str] = ()) -> str:
    return ", ".join([*bugs, *(f"{name} (permitted)" for name in permitted)]) or "-"


def steps(one: Judged) -> str:
    latent, manifest = first_latent(one), one.row.steps_to_harm()
    return f"{'-' if latent is None else latent} / {'-' if manifest is None else manifest}"


def first_latent(one: Judged) -> int | None:
    """Events stepped from the first send until the event that the first latent finding blames."""
    lines = (one.played.folder / "trace.jsonl").read_bytes().splitlines()
    times = [
        orjson.loads(lines[example["event"]])["time"]
        for finding in one.harmed.findings
        if finding.name in one.row.latent
        for example in finding.examples
        if "event" in example
    ]
    if not times:
        return None
    at = bisect_left([time for time, _ in one.played.clock], min(times))
    return one.played.clock[min(at, len(one.played.clock) - 1)][1] - one.played.begun


def summary(lines: Sequence[Line]) -> str:
    rows = [one for one in lines if one.cells]
    bugs = {bug for one in rows for bug in one.bugs}
    caught = {bug for one in rows if not one.wrong for bug in one.bugs}
    flagged, alike = sum(one.flagged for one in lines), sum(one.alike for one in lines)
    return (
        f"{len(rows)} rows, {len(bugs)} known-bad rules, {len(caught)} caught; the broker without them "
        f"flagged in {flagged} plays, the look-alike `{LOOK_ALIKE}` in {alike}."
    )


def put_into(readme: Path, lines: Sequence[str]) -> None:
    """Replaces the lines between the marks."""
    before, begin, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{readme} lacks the marks {BEGIN} and {END}")
    text = "\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"])
    write_whole(readme, text.encode())


def main() -> int:
    """Returns 0 if every row is as the table expects."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--readme", type=Path, help="write the table into this file, between its marks")
    parser.add_argument("--only", help="rows whose name contains this")
    asked = parser.parse_args()
    rows = [row for row in ROWS if asked.only is None or asked.only in row.name]
    with tempfile.TemporaryDirectory(prefix="floodmark-teeth-") as parent:
        print("playing the scenarios in memory, and the rest by hand", file=sys.stderr)
        found = by_scenario(asked.only, Path(parent) / "scenarios")
        found += map(by_hand, judged(rows, Path(parent)) if rows else ())
        lines = [*table(found), "", summary(found)]
    print("\n".join(lines))
    for one in found:
        for why in one.wrong:
            print(f"NOT as the table says: {one.title}: {why}", file=sys.stderr)
    if asked.readme is not None:
        put_into(asked.readme, lines)
    return 1 if any(one.wrong for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
