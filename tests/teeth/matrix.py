"""`make teeth`: judges every known-bad rule, and prints the result as a table.

The scenarios (the shipped ones, and tests/teeth/scenarios) are played on the simulated cluster: each row, and
each correct broker once more with the look-alike that must not be flagged. `--readme FILE` puts the table
between that file's marks.

    latent    findings of the trace, before a client could see any harm
    manifest  findings of history and logs in the end
    played    by which scenario
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulated_scenarios import ALL, LOOK_ALIKE, look_alikes, played

from floodmark.harness.run import write_whole
from floodmark.harness.verdict import BUG, Verdict
from floodmark.nemesis.scenario import differences

BEGIN, END = "<!-- teeth: make teeth writes these lines -->", "<!-- end of teeth -->"


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


# -- the table ----------------------------------------------------------------------------------------------


def table(lines: Sequence[Line]) -> list[str]:
    """The table in Markdown."""
    head = ("known-bad rule", "zoo", "latent", "manifest", "played", "without it")
    rows = sorted((one.zoo, one.who, one.cells) for one in lines if one.cells)
    body = [f"| {who} | {zoo} | {' | '.join(cells)} |" for zoo, who, cells in rows]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *body]


def by_scenario(only: str | None, parent: Path) -> list[Line]:
    """A line for each row; those of controls and look-alikes have no cells."""
    parts = [part for part in (*ALL, *look_alikes()) if only is None or only in part.title]
    found = played(parts, parent)
    flagged: dict[str, str] = {}  # scenario -> the findings in its controls
    for part, (_, verdict) in zip(parts, found, strict=True):
        if part.row.control:
            flagged[part.scenario.name] = flagged.get(part.scenario.name, "") + bugs_of(verdict)
    lines = []
    for part, (one, verdict) in zip(parts, found, strict=True):
        row, scenario = part.row, part.scenario
        control = row.control or not (row.harm or row.permitted)
        alike = LOOK_ALIKE in row.switches and row.control
        cells = () if control else (
            listed(sorted(row.latent)), listed(sorted(row.manifest), sorted(row.permitted)),
            f"`{scenario.name}`", flagged.get(scenario.name) or "no bug found")
        lines.append(Line(
            zoo=scenario.zoo, who=who(row.rules, row.bugs, row.switches), bugs=row.bugs,
            title=part.title, wrong=[one.why] if one.why else differences(row, verdict), cells=cells,
            flagged=control and not alike and bool(bugs_of(verdict)),
            alike=alike and bool(bugs_of(verdict))))
    return lines


def bugs_of(verdict: Verdict) -> str:
    return ", ".join(sorted({one.name for one in verdict.findings if one.klass == BUG}))


def who(rules: str, bugs: Sequence[str], switches: Sequence[str]) -> str:
    words = [] if bugs and rules == "kip-320" else [f"generation `{rules}`"]
    words += [f"`{bug}`" for bug in bugs]
    return " ".join(words) + (f" ({', '.join(switches)})" if switches else "")


def listed(bugs: Sequence[str], permitted: Sequence[str] = ()) -> str:
    return ", ".join([*bugs, *(f"{name} (permitted)" for name in permitted)]) or "-"


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
    with tempfile.TemporaryDirectory(prefix="floodmark-teeth-") as parent:
        found = by_scenario(asked.only, Path(parent))
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
