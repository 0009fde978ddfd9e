"""Makes the batches of a soak in a process of its own: it writes folders and, if asked, judges them by the
twin.

Rules kept here: (campaign, seed, first number, count) determines a batch; what comes back is small; a batch
is in one folder, so that it can be deleted at once.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import random_runs
import twin
from random_runs import Made
from soak_bases import Base, base_of, write_files
from soak_legal import QUIET, TAMPERING, UNREADABLE, amounts_to
from soak_mistyped import MISTYPED, mistype
from soak_mutations import MUTATIONS, Files
from soak_mutations_files import is_spare
from twin_compare import spoken

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
    must: frozenset[str] | None = None  # the bugs to find, if known
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
        path = root / f"base-{group}"
        base = base_of(seed, group, path)
        at = len(batch)
        batch.append(Asked(number=group * OF_ONE_BASE, path=path, story=base.story, kind="base",
                           must=base.must, files=base.files))
        numbers = range(max(first, group * OF_ONE_BASE), min(first + count, (group + 1) * OF_ONE_BASE))
        for number in numbers:
            batch += one_mutated(seed, number, root, base, at, len(batch))
    return batch


def one_mutated(seed: str, number: int, root: Path, base: Base, at: int, here: int) -> list[Asked]:
    """The base with one mutation; one in ten folders whose only law is an equal verdict comes twice."""
    random = Random(f"mutated {seed} {number}")
    names = sorted(MUTATIONS)
    while True:
        name = random.choice(names)
        files = dict(base.files)
        touched = MUTATIONS[name].change(files, random)
        if touched is not None and files != base.files:
            break
    law = MUTATIONS[name].kind
    kind = law(touched) if law else amounts_to(touched, base.files[touched] or b"", files[touched] or b"")
    if kind == UNREADABLE and is_spare(base.files, touched):
        kind = QUIET
    story = f"{name} in {touched} ({kind}) of: {base.story}"
    made = [Asked(number=number, path=write_files(files, root / f"{number}"), story=story, kind=kind,
                  touched=touched, base=at)]
    if kind == TAMPERING and random.random() < 0.1:
        made.append(Asked(number=number, path=write_files(files, root / f"{number}-again"), story=story,
                          kind=kind, touched=touched, base=at, again=here))
    return made
