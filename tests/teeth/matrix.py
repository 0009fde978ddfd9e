"""`make teeth`: every known-bad rule against the judge, as a table.

Each row of teeth_table.py is played on the pure machines, in memory: once with its bug, once without, once
with the look-alike that must not be flagged. Every play is written as a run folder, and all folders are
judged in one call, by the judge of real runs. `--readme FILE` puts the table between that file's marks.

    latent    what the trace shows before a client could see any harm
    manifest  what history and logs show in the end
    steps     events stepped from the first send until the first latent finding's event, until the first harm
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
from teeth_table import ROWS, Row

from floodmark.harness import catalog
from floodmark.harness.run import write_whole
from floodmark.harness.verdict import BUG, Verdict

BEGIN, END = "<!-- teeth: make teeth writes these lines -->", "<!-- end of teeth -->"
LOOK_ALIKE = "hw-isr-only"  # before 0.10.2 only the ISR held the HW: liveness, no bug


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A row on one cluster; `clock` says how many events had been stepped at each moment of its trace."""

    folder: Path
    begun: int
    clock: tuple[tuple[int, int], ...]  # (time_ns, steps), ascending


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A row and what came of its three plays."""

    row: Row
    played: Played
    harmed: Verdict
    control: Verdict
    look_alike: Verdict

    @property
    def wrong(self) -> list[str]:
        """Where it is not as the table says."""
        missing = [("bug", name) for name in (*self.row.latent, *self.row.manifest)]
        missing += [("permitted", name) for name in self.row.permitted]
        found = {(one.klass, one.name) for one in self.harmed.findings}
        told = [f"not found: {name} ({klass})" for klass, name in missing if (klass, name) not in found]
        for which, verdict in (("control", self.control), ("look-alike", self.look_alike)):
            told += [f"{which}: {one.name}" for one in verdict.findings if one.klass == BUG]
        return told


def play(row: Row, folder: Path, *, control: bool = False, switches: tuple[str, ...] = ()) -> Played:
    """One play, written down."""
    cluster = row.cluster(control=control, switches=switches)
    recorder = attach(cluster)
    begun, clock = cluster.steps, []
    cluster.on_step = lambda: clock.append((recorder.time_ns, cluster.steps))
    row.play(cluster)
    write_folder(cluster, folder)
    return Played(folder=folder, begun=begun, clock=tuple(clock))


def judged(rows: Sequence[Row], parent: Path) -> list[Judged]:
    """All rows, in one call of the judge."""
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


def table(results: Sequence[Judged]) -> list[str]:
    """Markdown."""
    head = ("known-bad rule", "zoo", "latent", "manifest", "steps", "without it")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for one in sorted(results, key=lambda one: (one.row.zoo, who(one.row))):
        row, flagged = one.row, bugs_of(one.control)
        cells = (who(row), row.zoo, listed(row.latent), listed(row.manifest, row.permitted), steps(one),
                 flagged or "no bug found")  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def bugs_of(verdict: Verdict) -> str:
    return ", ".join(sorted({one.name for one in verdict.findings if one.klass == BUG}))


def who(row: Row) -> str:
    side = row.side
    words = [] if side.bugs and side.rules == "kip-320" else [f"generation `{side.rules}`"]
    words += [f"`{bug}`" for bug in side.bugs]
    return " ".join(words) + (f" ({', '.join(side.switches)})" if side.switches else "")


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


def summary(results: Sequence[Judged]) -> str:
    bugs = {bug for one in results for bug in one.row.side.bugs}
    caught = {bug for one in results if not one.wrong for bug in one.row.side.bugs}
    flagged = sum(bool(bugs_of(one.control)) for one in results)
    alike = sum(bool(bugs_of(one.look_alike)) for one in results)
    return (
        f"{len(results)} rows, {len(bugs)} known-bad rules, {len(caught)} caught; the broker without them "
        f"flagged in {flagged} of {len(results)} plays, the look-alike `{LOOK_ALIKE}` in {alike}."
    )


def put_into(readme: Path, lines: Sequence[str]) -> None:
    """The lines, in place of what stood between the marks."""
    before, begin, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{readme} lacks the marks {BEGIN} and {END}")
    text = "\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"])
    write_whole(readme, text.encode())


def main() -> int:
    """0 if every row is as the table says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--readme", type=Path, help="write the table into this file, between its marks")
    parser.add_argument("--only", help="rows whose name contains this")
    asked = parser.parse_args()
    rows = [row for row in ROWS if asked.only is None or asked.only in row.name]
    with tempfile.TemporaryDirectory(prefix="floodmark-teeth-") as parent:
        print(f"playing {len(rows)} rows three times each, then one call of the judge", file=sys.stderr)
        results = judged(rows, Path(parent))
        lines = [*table(results), "", summary(results)]
    print("\n".join(lines))
    for one in results:
        for why in one.wrong:
            print(f"NOT as the table says: {one.row.name}: {why}", file=sys.stderr)
    if asked.readme is not None:
        put_into(asked.readme, lines)
    return 1 if any(one.wrong for one in results) else 0


if __name__ == "__main__":
    sys.exit(main())
