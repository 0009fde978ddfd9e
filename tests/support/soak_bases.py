"""The run folders that a soak mutates: healthy, damaged, saved ones, and the cases of the judge's corpus.

Rules kept here: a seed and a number determine a base, whoever asks and in whatever order; the bugs that must
be found in a base are known from how it was made, and are None if they are not known.
"""

import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import corpus
import damages_clients
import damages_files
import damages_logs
import damages_losses
import damages_orders
import damages_trace
import damages_trace_isr
import damages_unread
from damages import BUG, DAMAGES, FILES, NEAR_MISSES, Damage, Expect
from planting import NOT_SETTLED
from soak_mutations import Files
from soak_mutations_files import in_parquet
from traces import traced

from histories import RunFolder, healthy

TESTS = Path(__file__).parents[1]
GOLDEN = TESTS.parent / "histories" / "golden"
ADDED_BY = (  # imported because they register their damages
    damages_clients, damages_files, damages_logs, damages_losses, damages_orders, damages_trace_isr,
    damages_unread)
TRACED = damages_trace.DAMAGES | damages_trace.NEAR_MISSES
PARQUET_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A folder that was written, and what is known of it."""

    story: str
    files: Files
    must: frozenset[str] | None  # names of the planted bugs; empty: none was planted, and none may be found


def base_of(seed: str, number: int, root: Path) -> Base:
    """Writes the base to `root`, which must not exist."""
    random = Random(f"base {seed} {number}")
    make = random.choices((untouched, untraced_damage, traced_run, saved, a_case), (40, 25, 15, 10, 10))[0]
    story, must = make(random, root)
    files = files_of(root)
    if random.random() < PARQUET_SHARE and b"compact" not in (files.get("run.json") or b""):
        in_parquet(files, random)
        write_files(files, root)
        story += ", in Parquet"
    return Base(story=story, files=files, must=must)


def files_of(root: Path) -> Files:
    """The files that a judge reads, by name."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*"))
            if path.is_file() and path.name not in ("expected.json", "verdict.json")}


def write_files(files: Files, root: Path) -> Path:
    """Writes a folder with these files and no others."""
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_file() or path.is_symlink():
            path.unlink()
        else:
            path.rmdir()
    root.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            path.mkdir()
        else:
            path.write_bytes(data)
    return root


# -- the kinds ----------------------------------------------------------------------------------------------

Made = tuple[str, frozenset[str] | None]


def untouched(random: Random, root: Path) -> Made:
    """A healthy folder, or one with a near miss."""
    if random.random() < 0.2:
        return planted(random, root, healthy(random, steps=random.randrange(20, 60)), NEAR_MISSES)
    healthy(random, steps=random.randrange(10, 60), settled=random.random() < 0.9).write(root)
    return "healthy", frozenset()


def untraced_damage(random: Random, root: Path) -> Made:
    return planted(random, root, healthy(random, steps=random.randrange(20, 60)), DAMAGES | FILES)


def traced_run(random: Random, root: Path) -> Made:
    folder = traced(random, rough=random.random() < 0.3, clock_error_ns=random.choice((0, 0, 500_000)))
    if random.random() < 0.5:
        folder.write(root)
        return "traced", None
    return planted(random, root, folder, TRACED)


def planted(random: Random, root: Path, folder: RunFolder, damages: dict[str, Damage]) -> Made:
    """Plants the first of these damages (in random order) that fits this folder."""
    names = sorted(set(damages) - set(NOT_SETTLED))
    random.shuffle(names)
    for name in names:
        attempt = copy.deepcopy(folder)
        try:
            expect = damages[name](attempt, random)
        except (AssertionError, AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError):
            continue
        if expect is not None:
            attempt.write(root)
            return name, bugs_of(expect)
    folder.write(root)
    return "none of the damages", None


def bugs_of(expect: Expect) -> frozenset[str] | None:
    """The bugs that must be found; None if it is one of several."""
    if expect.valid is False and not expect.must:
        return None
    return frozenset(name for name, kind in expect.must.items() if kind == BUG)


def saved(random: Random, root: Path) -> Made:
    folder = random.choice(sorted(path.parent for path in GOLDEN.glob("*/expected.json")))
    write_files(files_of(folder), root)
    return folder.name, None


def a_case(random: Random, root: Path) -> Made:
    case = random.choice(cases())
    case.write(root)
    found = (line for line in case.expected if not line.startswith(("unknown: ", "not made: ")))
    return case.ident, frozenset(line.split()[0] for line in found if "(" not in line) or None


@cache
def cases() -> list[corpus.Case]:
    """The cases of the judge's corpus that are runs."""
    return [case for case in corpus.cases() if "unknown: MADE, unfit" not in case.expected]
