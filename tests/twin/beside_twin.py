"""Random run folders, each with the twin's verdict, and what is wrong with another one.

    histories   random small runs, legal and damaged: judge and twin agree, name by name
    mistyped    the same, half of them with a trace; one value is another, mostly of another type, or is gone
    mutated     the same, and cases of the corpus whatever is wrong with them, with a damage to one file

Rules kept here:
1. Campaign, seed and number determine a folder, whoever asks and in whatever order.
2. The judge never fails, and says what the twin says, name by name. Where a value has another type, in
   run.json, and where readers of JSON differ (LOOSELY) it may leave more open: it calls nothing a bug that
   the twin does not, a bug of the twin's is at least unknown, and a run is valid only if the twin says so.
3. After a damage to run.json a bug that was one before it may stay one. The twin may be unable to read it.
4. Whatever the twin says: what only takes files away from a valid run (TAKES_AWAY) makes no bug of it. But a
   history may have shown a fault that the schedule lacks, and logs that a batch is good which a reader found
   corrupt.
5. Where clocks err, the judge may find fewer: it asks only after the last of lines too near to be in order
   which candidates lack a record, and claims no ack-rule of a member that may have appended in a later epoch.
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import random_runs
import twin
from file_damages import DAMAGES, HISTORY, RUN, Files
from twin_compare import as_dict, spoken
from twin_folder import EVENT, OF_EVENTS, fits, object_of

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.parquet_dump import write_parquet
from floodmark.harness.verdict import BUG, Verdict

LOOSELY = {"a_field_comes_twice", "a_folder_stands_there", "a_mark_of_byte_order"}
TAKES_AWAY = {"a_file_goes", "a_folder_stands_there", "all_dumps_go", "blank_lines_come"}
OF_FIELDS = ("a_field_goes", "a_value_is_another")
FAILED = "the judge failed"
Spoken = tuple[Any, ...]  # valid, findings, unknown names, names that are not made


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One folder to judge, and what its verdict is compared with."""

    number: int
    path: Path
    story: str
    legal: bool
    wanted: Spoken | str  # the twin's verdict, or how it failed
    loosely: bool = False
    before: frozenset[str] | None = None  # for a damaged run.json: the twin's findings before the damage


# -- folders ------------------------------------------------------------------------------------------------

def make(campaign: str, seed: str, root: Path, number: int) -> Asked:
    """Writes one folder, and has it judged by the twin."""
    if campaign == "histories":
        run = random_runs.run_of(seed, number, root)
        return Asked(number=number, path=run.path, story=run.story, legal=run.legal, wanted=by_twin(run.path))
    random = Random(f"{campaign} {seed} {number}")
    path, story = base_of(campaign, seed, number, root, random)
    base = files_of(path)
    files, name, touched = damaged(base, random, OF_FIELDS if campaign == "mistyped" else sorted(DAMAGES))
    write_files(files, path)
    wanted, before, legal = by_twin(path), None, False
    if touched == RUN or name in TAKES_AWAY:
        told = by_twin(write_files(base, path.with_suffix(".base")))
        shown = b'"fault"' if touched == HISTORY else b'"corrupt"'
        legal = name in TAKES_AWAY and told[0] is True and shown not in (base.get(HISTORY) or b"")
        if touched == RUN and not isinstance(told, str):
            before = frozenset(name for name, *_ in told[1])
    return Asked(number=number, path=path, story=f"{name} in {touched} of: {story}", legal=legal,
                 wanted=wanted, before=before,
                 loosely=campaign == "mistyped" or touched == RUN or name in LOOSELY)


def base_of(campaign: str, seed: str, number: int, root: Path, random: Random) -> tuple[Path, str]:
    """A random run or, of the mutated ones, a case of the corpus too; a few have their dumps as Parquet."""
    path, traced_share = root / f"{number:05}", 0.5 if campaign == "mistyped" else 0.25
    if campaign == "mistyped" or random.random() < 0.75:
        story = random_runs.run_of(f"{campaign} {seed}", number, root, traced_share=traced_share).story
    else:
        story = random.choice(sorted(random_runs.by_ident()))
        random_runs.by_ident()[story].write(path)
    if random.random() < 0.2:
        story += ", in Parquet"
        in_parquet(path, beside=random.random() < 0.5)
    return path, story


def in_parquet(path: Path, *, beside: bool) -> None:
    """The dumps as Parquet, alone or beside the lines; those that are no lines stay as they are."""
    for lines in sorted((path / "logs").glob("*.jsonl")):
        with suppress(FloodmarkError):
            write_parquet(lines)
            if not beside:
                lines.unlink()


def damaged(base: Files, random: Random, names: Sequence[str]) -> tuple[Files, str, str]:
    """The files after a damage, its name, and that of the file that it changed."""
    while True:
        name, files = random.choice(names), dict(base)
        with suppress(random_runs.Unfit):
            touched = DAMAGES[name](files, random)
            if files != base and untimely(files) <= untimely(base):
                return files, name, touched


def untimely(files: Files) -> bool:
    """Whether in the trace a node's time falls while its seq rises: nobody knows which of them is wrong."""
    events = map(object_of, (files.get("trace.jsonl") or b"").split(b"\n"))
    in_order = sorted((event for event in events if event and fits(event, EVENT, OF_EVENTS)),
                      key=lambda event: (event.node, event.seq))
    return any(one.node == other.node and other.time < one.time for one, other in pairwise(in_order))


def by_twin(path: Path) -> Spoken | str:
    try:
        return spoken(twin.judge(path))
    except Exception as error:  # reported like any other difference
        return f"the twin failed: {type(error).__name__}: {error}"


def files_of(root: Path) -> Files:
    """The files that a judge reads, by name."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*"))
            if path.is_file() and path.name not in ("expected.json", "verdict.json")}


def write_files(files: Files, root: Path) -> Path:
    """Writes a folder with these files and no others."""
    shutil.rmtree(root, ignore_errors=True)
    (root / "logs").mkdir(parents=True)
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if data is None:
            path.mkdir()
        else:
            path.write_bytes(data)
    return root


# -- what is wrong with a verdict ---------------------------------------------------------------------------

def wrong(asked: Asked, verdict: Verdict | str) -> Iterator[str]:
    if isinstance(verdict, str):
        yield f"traceback: {verdict}"
        return
    yield from (f"traceback: {one.reason}" for one in verdict.unknown if one.reason.startswith(FAILED))
    mine = spoken(as_dict(verdict))
    if asked.legal and bugs(mine):
        yield f"false alarm: {', '.join(sorted(bugs(mine)))} in a legal run"
    if isinstance(asked.wanted, str) and asked.before is None:
        yield asked.wanted
    elif asked.wanted == mine or (not isinstance(asked.wanted, str) and fewer(asked, mine)):
        return
    elif asked.loosely:
        yield from harsher_or_blinder(asked, mine)
    else:
        yield f"difference:\n    twin  {asked.wanted}\n    judge {mine}"


def fewer(asked: Asked, mine: Spoken) -> bool:
    """Whether this is all that differs, and rule 5 allows it."""
    wanted: Any = asked.wanted
    theirs, ours = (Counter({tuple(what): count for *what, count in found}) for found in (wanted[1], mine[1]))
    missed = {name for name, *_ in theirs - ours}
    if ours - theirs or wanted[2:] != mine[2:] or not set() < missed <= {"candidate-incomplete", "ack-rule"}:
        return False
    return bool(json.loads((asked.path / RUN).read_bytes()).get("clock_error_ns"))


def bugs(verdict: Spoken) -> set[str]:
    return {name for name, klass, *_ in verdict[1] if klass == BUG}


def harsher_or_blinder(asked: Asked, mine: Spoken) -> Iterator[str]:
    """Breaches of rules 2 and 3 where the judge may leave more open than the twin."""
    read = None if isinstance(asked.wanted, str) else asked.wanted
    theirs = bugs(read) if read else set()
    if harsher := bugs(mine) - theirs - (asked.before or set()):
        yield f"false alarm: {', '.join(sorted(harsher))}, says the twin"
    by_reads = {"lost-write"} if "saw-then-lost" in mine[2] else set()  # they alone tell, without a log
    if missed := theirs - {name for name, *_ in mine[1]} - {*mine[2]} - by_reads:
        yield f"false valid: {', '.join(sorted(missed))}, says the twin"
    if mine[0] is True and read and read[0] is not True:
        yield f"false valid: {read[0]}, says the twin"
