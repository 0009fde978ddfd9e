"""Makes the batches of a soak in a process of its own: it writes folders and, if asked, judges them by the
twin.

Rules kept here: (campaign, seed, first number, count) determines a batch; what comes back is small; a batch
is in one folder, so that it can be deleted at once.
"""

import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import random_runs
import twin
from random_runs import Made
from soak_laws import MISTYPED, QUIET, TAMPERING, UNREADABLE, Files, amounts_to
from soak_mutations import MUTATIONS, in_parquet, is_spare, mistype
from twin_compare import spoken

GOLDEN = Path(__file__).parents[2] / "histories" / "golden"
PARQUET_SHARE = 0.2
OF_ONE_BASE = 20  # mutations


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One folder to judge, and what its verdict is compared with."""

    number: int
    path: Path
    story: str
    kind: str  # history, base, or the kind of a mutation
    touched: str = ""
    base: int = -1  # position in the batch of the folder before the mutation
    again: int = -1  # position of the same folder, which must get the same verdict
    wanted: Any = None  # for a history: the twin's verdict
    must: frozenset[str] | None = None  # the bugs to find, if known; empty: none may be found
    files: Files | None = None  # for a base


def histories(seed: str, first: int, count: int, root: Path) -> list[Asked]:
    """Random small folders, each with the twin's verdict."""
    return [beside_twin(number, random_runs.run_of(seed, number, root))
            for number in range(first, first + count)]


def mistyped(seed: str, first: int, count: int, root: Path) -> list[Asked]:
    """The same, half of them with a trace; in each one value has another type."""
    batch = []
    for number in range(first, first + count):
        run = random_runs.run_of(f"mistyped {seed}", number, root, traced_share=0.5)
        done = mistype(run.path, Random(f"mistyped {seed} {number}"))
        run = replace(run, story=f"{done}, in: {run.story}", legal=False)
        batch.append(replace(beside_twin(number, run), kind=MISTYPED))
    return batch


def beside_twin(number: int, run: Made) -> Asked:
    try:
        wanted: Any = spoken(twin.judge(run.path))
    except Exception as error:  # the twin's own failure is reported like any other difference
        wanted = f"the twin failed: {type(error).__name__}: {error}"
    return Asked(number=number, path=run.path, story=run.story, kind="history", wanted=wanted,
                 must=frozenset() if run.legal else None)


def mutated(seed: str, first: int, count: int, root: Path) -> list[Asked]:
    """Mutated folders; after each group of them comes the folder before the mutations."""
    batch: list[Asked] = []
    for group in range(first // OF_ONE_BASE, -(-(first + count) // OF_ONE_BASE)):
        base, at = base_of(seed, group, root / f"base-{group}"), len(batch)
        batch.append(base)
        numbers = range(max(first, group * OF_ONE_BASE), min(first + count, (group + 1) * OF_ONE_BASE))
        for number in numbers:
            batch += one_mutated(seed, number, root, base, at, len(batch))
    return batch


def one_mutated(seed: str, number: int, root: Path, base: Asked, at: int, here: int) -> list[Asked]:
    """The base with one mutation; one in ten folders whose only law is an equal verdict comes twice."""
    random = Random(f"mutated {seed} {number}")
    before = base.files or {}
    files, touched = before, ""
    while files == before:
        name, files = random.choice(sorted(MUTATIONS)), dict(before)
        change, law = MUTATIONS[name]
        with suppress(random_runs.Unfit):
            touched = change(files, random)
    kind = law(touched) if law else amounts_to(touched, before[touched] or b"", files[touched] or b"")
    if kind == UNREADABLE and is_spare(before, touched):
        kind = QUIET
    story = f"{name} in {touched} ({kind}) of: {base.story}"
    made = [Asked(number=number, path=write_files(files, root / f"{number}"), story=story, kind=kind,
                  touched=touched, base=at)]
    if kind == TAMPERING and random.random() < 0.1:
        made.append(Asked(number=number, path=write_files(files, root / f"{number}-again"), story=story,
                          kind=kind, touched=touched, base=at, again=here))
    return made


# -- the folders that are mutated ---------------------------------------------------------------------------

def base_of(seed: str, group: int, root: Path) -> Asked:
    """Writes to `root`, which must not exist, what a group of mutations starts from: a random or saved run
    or a case of the corpus."""
    random = Random(f"base {seed} {group}")
    make = random.choices((a_random_run, saved, a_case), (70, 10, 20))[0]
    story, must = make(random, root)
    files = files_of(root)
    if random.random() < PARQUET_SHARE and b"compact" not in (files.get("run.json") or b""):
        in_parquet(files, random)
        write_files(files, root)
        story += ", in Parquet"
    return Asked(number=group * OF_ONE_BASE, path=root, story=story, kind="base", must=must, files=files)


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


def a_random_run(random: Random, root: Path) -> tuple[str, frozenset[str] | None]:
    """Half of them legal."""
    number = random.randrange(1 << 30)
    run = random_runs.run_of("base", number - number % 10 * random.randrange(2), root.with_suffix(".made"))
    shutil.move(run.path, root)
    run.path.parent.rmdir()
    return run.story, frozenset() if run.legal else None


def saved(random: Random, root: Path) -> tuple[str, frozenset[str] | None]:
    folder = random.choice(sorted(path.parent for path in GOLDEN.glob("*/expected.json")))
    write_files(files_of(folder), root)
    return folder.name, None


def a_case(random: Random, root: Path) -> tuple[str, frozenset[str] | None]:
    case = random.choice(sorted(random_runs.by_ident().items()))[1]
    case.write(root)
    found = (line for line in case.expected if not line.startswith(("unknown: ", "not made: ")))
    return case.ident, frozenset(line.split()[0] for line in found if "(" not in line) or None
