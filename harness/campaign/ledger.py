"""What all campaigns together know of each cause: a file that people read, merge and keep in git.

    {"format": 1,
     "campaigns": {ID: {"began": ..., "version": ..., "commit": ..., "runs": {SYSTEM: runs judged}}},
     "signatures": {ID: {"signature": {...}, "found": {CAMPAIGN: runs}, "smallest": {...},
                         "reproduced": [k, N], "faults": {FAULTS: runs},
                         "known": {"reason": ..., "since": ...} | null, "notes": []}}}

Rules
1. Counts are kept by campaign: adding the same campaign again, or merging two files that both have it, counts
   nothing twice. merged(a, b) == merged(b, a).
2. A signature keeps the id it came with. It is found by its fields, in which findings bear today's names.
3. Keys are sorted and every value has its line, so that git can merge what two nights added.
4. Who writes holds the lock beside the file; the file is replaced by rename, once its data is on disk.
"""

import fcntl
import glob
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run import write_whole

FORMAT = 1
RENAMED: Mapping[str, str] = {}  # findings: the name that ledgers have, and today's
ADVICE = "a newer version of floodmark wrote it: update floodmark, or name another --ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """One campaign, as far as a ledger keeps it. began: ISO 8601 with its zone; runs: by system, those that
    were judged."""

    began: str
    version: str
    commit: str | None
    runs: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Smallest:
    """The run to look at: the one with the fewest bytes. case, seed: to run it again first."""

    folder: str
    size_bytes: int
    case: Mapping[str, Any]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is known of one signature."""

    id: str
    signature: Signature
    found: Mapping[str, int] = field(default_factory=dict)  # campaign -> runs that showed it
    faults: Mapping[str, int] = field(default_factory=dict)  # what struck in those runs -> runs
    smallest: Smallest | None = None
    reproduced: tuple[int, int] = (0, 0)  # k of N
    known: Mapping[str, str] | None = None  # reason, since
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return sum(self.found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All of it. A value: what changes it gives another one."""

    nights: Mapping[str, Night] = field(default_factory=dict)
    entries: Mapping[str, Entry] = field(default_factory=dict)

    def of(self, signature: Signature) -> Entry | None:
        """The entry of this cause, under whatever id."""
        return next((entry for entry in self.entries.values() if entry.signature == signature), None)

    def knows(self, signature: Signature) -> bool:
        """Whether somebody has marked this cause as known."""
        entry = self.of(signature)
        return entry is not None and entry.known is not None

    def named(self, word: str) -> Entry:
        """By its id or the beginning of it; FloodmarkError where that names none, or several."""
        found = [entry for id_, entry in sorted(self.entries.items()) if id_.startswith(word)]
        if len(found) != 1 or not word:
            there = ", ".join(sorted(self.entries)[:20]) or "none"
            what = "no signature" if not found else f"{len(found)} signatures"
            raise FloodmarkError(f"the ledger has {what} {word!r}; it has: {there}")
        return found[0]

    def seen(self, entry: Entry) -> list[str]:
        """The campaigns that showed it, the first one first."""
        return sorted(entry.found, key=lambda night: (self.nights[night].began, night))

    def runs_of(self, system: str, nights: Sequence[str] | None = None) -> int:
        """How many runs of this system were judged, in all campaigns or in these."""
        return sum(night.runs.get(system, 0) for name, night in self.nights.items()
                   if nights is None or name in nights)

    def noting(self, name: str, night: Night) -> "Ledger":
        """With this campaign as it stands now, in the place of what it had before."""
        return replace(self, nights={**self.nights, name: night})

    def finding(self, signature: Signature, night: str, runs: int, *, faults: Mapping[str, int],
                smallest: Smallest | None) -> "Ledger":
        """With what a campaign has found of a cause up to now."""
        entry = self.of(signature) or Entry(id=signature.id, signature=signature)
        known_faults = {name: max(faults.get(name, 0), entry.faults.get(name, 0))
                        for name in {*faults, *entry.faults}}
        return self._with(replace(entry, found={**entry.found, night: runs}, faults=known_faults,
                                  smallest=_smaller(entry.smallest, smallest)))

    def reproducing(self, id_: str, shown: int, of: int) -> "Ledger":
        return self._with(replace(self.entries[id_], reproduced=(shown, of)))

    def marking(self, id_: str, *, reason: str | None, since: str) -> "Ledger":
        """Known, with a reason; None: not known any more."""
        known = None if reason is None else {"reason": reason, "since": since}
        return self._with(replace(self.entries[id_], known=known))

    def annotating(self, id_: str, note: str) -> "Ledger":
        entry = self.entries[id_]
        return self._with(replace(entry, notes=(*entry.notes, note)))

    def _with(self, entry: Entry) -> "Ledger":
        return replace(self, entries={**self.entries, entry.id: entry})


def merged(one: Ledger, other: Ledger) -> Ledger:
    """Both. Of a campaign that both have, the larger counts; of two ids for one cause, the first by name."""
    nights = dict(one.nights)
    for name, night in other.nights.items():
        nights[name] = _later(nights[name], night) if name in nights else night
    by_cause: dict[Signature, Entry] = {}
    for entry in (*one.entries.values(), *other.entries.values()):
        before = by_cause.get(entry.signature)
        by_cause[entry.signature] = entry if before is None else _both(before, entry)
    return Ledger(nights=nights, entries={entry.id: entry for entry in by_cause.values()})


def _later(one: Night, other: Night) -> Night:
    runs = {system: max(one.runs.get(system, 0), other.runs.get(system, 0))
            for system in {*one.runs, *other.runs}}
    return replace(max(one, other, key=lambda night: (night.began, night.version)), runs=runs)


def _both(one: Entry, other: Entry) -> Entry:
    first, second = sorted((one, other), key=lambda entry: entry.id)
    marks = [dict(entry.known) for entry in (first, second) if entry.known is not None]
    return Entry(
        id=first.id, signature=first.signature,
        found=_most(first.found, second.found), faults=_most(first.faults, second.faults),
        smallest=_smaller(first.smallest, second.smallest),
        reproduced=max(first.reproduced, second.reproduced, key=lambda pair: (pair[1], pair[0])),
        known=max(marks, key=lambda mark: (mark["since"], mark["reason"]), default=None),
        notes=tuple(dict.fromkeys(sorted((*first.notes, *second.notes)))),
    )  # fmt: skip


def _most(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {*one, *other}}


def _smaller(one: Smallest | None, other: Smallest | None) -> Smallest | None:
    there = [each for each in (one, other) if each is not None]
    return min(there, key=lambda each: (each.size_bytes, each.folder), default=None)


# -- the file -----------------------------------------------------------------------------------------------


def load(path: Path) -> Ledger:
    """What the file has; an empty ledger where there is none yet. FloodmarkError for what is none."""
    try:
        data = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return Ledger()
    except OSError as error:
        raise FloodmarkError(f"cannot read the ledger {path}: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        why = f"is broken (a merge that was not finished?): {error}"
        raise FloodmarkError(f"the ledger {path} {why}") from error
    form = data.get("format") if isinstance(data, dict) else None
    if isinstance(form, int) and form > FORMAT:
        raise FloodmarkError(
            f"the ledger {path} is of format {form}, this floodmark knows {FORMAT}: {ADVICE}")
    try:
        if form != FORMAT:
            raise ValueError(f"its format is {form!r}")
        return _of_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FloodmarkError(f"{path} is no ledger: {error!r}") from error


def save(path: Path, ledger: Ledger) -> None:
    """In the place of what is there, by rename; on disk when this returns."""
    write_whole(path, as_bytes(ledger), durable=True)


def as_bytes(ledger: Ledger) -> bytes:
    signatures = {id_: {key: value for key, value in asdict(entry).items() if key != "id"}
                  for id_, entry in ledger.entries.items()}
    whole = {"format": FORMAT, "signatures": signatures,
             "campaigns": {name: asdict(night) for name, night in ledger.nights.items()}}
    return orjson.dumps(whole, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Nobody else writes this ledger meanwhile; whoever wants to, waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}"):
            left.unlink(missing_ok=True)  # of a writer that was killed: a living one has the lock
        yield


def _of_json(data: Mapping[str, Any]) -> Ledger:
    nights = {str(name): Night(**night) for name, night in data["campaigns"].items()}
    entries: dict[str, Entry] = {}
    for id_, row in data["signatures"].items():
        fields = dict(row["signature"])
        fields["finding"] = RENAMED.get(fields["finding"], fields["finding"])
        smallest = row.get("smallest")
        shown, of = row.get("reproduced", (0, 0))
        entries[id_] = Entry(
            id=str(id_), signature=Signature(**fields), found=dict(row["found"]),
            faults=dict(row.get("faults", {})),
            smallest=None if smallest is None else Smallest(**smallest), reproduced=(int(shown), int(of)),
            known=row.get("known"), notes=tuple(row.get("notes", ())),
        )  # fmt: skip
    strange = {night for entry in entries.values() for night in entry.found} - nights.keys()
    if strange:
        raise ValueError(f"it counts runs of campaigns that it does not list: {', '.join(sorted(strange))}")
    return Ledger(nights=nights, entries=entries)
