"""The run folders that a soak mutates: random ones, saved ones, and the cases of the judge's corpus.

Rules kept here: a seed and a number determine a base, whoever asks and in whatever order; the bugs that must
be found in a base are known from how it was made, and are None if they are not known.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random

import random_runs
from soak_mutations import Files
from soak_mutations_files import in_parquet

GOLDEN = Path(__file__).parents[2] / "histories" / "golden"
PARQUET_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A folder that was written, and what is known of it."""

    story: str
    files: Files
    must: frozenset[str] | None  # names of the bugs; empty: none may be found


def base_of(seed: str, number: int, root: Path) -> Base:
    """Writes the base to `root`, which must not exist."""
    random = Random(f"base {seed} {number}")
    make = random.choices((a_random_run, saved, a_case), (70, 10, 20))[0]
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


def a_random_run(random: Random, root: Path) -> Made:
    """Half of them legal."""
    number = random.randrange(1 << 30)
    run = random_runs.run_of("base", number - number % 10 * random.randrange(2), root.with_suffix(".made"))
    shutil.move(run.path, root)
    run.path.parent.rmdir()
    return run.story, frozenset() if run.legal else None


def saved(random: Random, root: Path) -> Made:
    folder = random.choice(sorted(path.parent for path in GOLDEN.glob("*/expected.json")))
    write_files(files_of(folder), root)
    return folder.name, None


def a_case(random: Random, root: Path) -> Made:
    case = random.choice(sorted(random_runs.by_ident().items()))[1]
    case.write(root)
    found = (line for line in case.expected if not line.startswith(("unknown: ", "not made: ")))
    return case.ident, frozenset(line.split()[0] for line in found if "(" not in line) or None
