"""Makes the batches of a soak in a process of its own: it writes folders and, if asked, judges them by the
twin.

Rules kept here: (campaign, seed, first number, count) determines a batch; what comes back is small; a batch
is in one folder, so that it can be deleted at once.
"""

import importlib.util
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import twin
from soak_bases import Base, base_of, write_files
from soak_legal import QUIET, TAMPERING, UNREADABLE, amounts_to
from soak_mistyped import MISTYPED, mistype
from soak_mutations import MUTATIONS, Files
from soak_mutations_files import is_spare
from twin_compare import spoken

PROPERTY = Path(__file__).parents[1] / "property"
OF_ONE_BASE = 20  # mutations
TRACED_SHARE = 4  # one history of so many has a trace


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
    must: frozenset[str] | None = None  # for a base: the planted bugs
    files: Files | None = None  # for a base


@cache
def module(name: str) -> ModuleType:
    """A test module of tests/property, used for its folders."""
    spec = importlib.util.spec_from_file_location(name, PROPERTY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def histories(seed: str, first: int, count: int, root: Path) -> list[Asked]:
    """Random small folders, each with the twin's verdict."""
    return [beside_twin(number, *story_of(seed, number, TRACED_SHARE, root))
            for number in range(first, first + count)]


def mistyped(seed: str, first: int, count: int, root: Path) -> list[Asked]:
    """The same, half of them with a trace; in each one value has another type."""
    batch = []
    for number in range(first, first + count):
        story, path = story_of(f"mistyped {seed}", number, 2, root)
        done = mistype(path, Random(f"mistyped {seed} {number}"))
        batch.append(replace(beside_twin(number, f"{done}, in: {story}", path), kind=MISTYPED))
    return batch


def story_of(seed: str, number: int, traced_share: int, root: Path) -> tuple[str, Path]:
    """A random history; one in so many has a trace."""
    traced = number % traced_share == 0
    source = module("test_judge_twin_trace" if traced else "test_judge_twin")
    source.SEED = seed  # type: ignore[attr-defined]
    before = number // traced_share  # with a trace, before this number
    turn = before if traced else number - before - 1  # both kinds count from 0
    story, path = source.folder_of(turn, root / f"{number}")
    return str(story), Path(path)


def beside_twin(number: int, story: str, path: Path) -> Asked:
    try:
        wanted: Any = spoken(twin.judge(path))
    except Exception as error:  # the twin's own failure is reported like any other difference
        wanted = f"the twin failed: {type(error).__name__}: {error}"
    return Asked(number=number, path=path, story=story, kind="history", wanted=wanted)


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
