"""Keeps what all campaigns found of each cause, in a file that people can read, merge and store in git.

    {"format": 1,
     "campaigns": {ID: {"began": ..., "version": ..., "commit": ..., "runs": {SYSTEM: runs judged}}},
     "signatures": {ID: {"signature": {...}, "found": {CAMPAIGN: runs}, "smallest": {...},
                         "reproduced": [k, N], "faults": {FAULTS: runs},
                         "known": {"reason": ..., "since": ...} | null, "notes": []}}}

Rules
1. Counts are kept by campaign, so adding the same campaign again counts nothing twice.
2. A signature keeps its first id. It is found by its fields, in which findings have their current names.
3. Keys are sorted and every value has a line of its own, so that git can merge what two nights added.
4. A writer holds the lock beside the file. The file is replaced by rename, after its data is on disk.
"""

import fcntl
import glob
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import orjson

from floodmark.harness.campaign.plan import case_to_json
from floodmark.harness.campaign.signatures import Signature
from floodmark.harness.campaign.state import State, judged_by_system, runs_by_signature, smallest
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.run import write_whole

FORMAT = 1
RENAMED: Mapping[str, str] = {}  # old name of a finding, as in ledgers -> current name


class Night(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One campaign in a ledger. began: ISO 8601 with the time zone; runs: system -> judged runs."""

    began: str
    version: str
    commit: str | None
    runs: Mapping[str, int]

    @property
    def began_at(self) -> datetime:
        return instant(self.began)


def instant(began: str) -> datetime:
    """The instant of an ISO 8601 text, whatever its time zone; before all others if it is none."""
    try:
        return datetime.fromisoformat(began).astimezone(UTC)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


class Smallest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The run to look at, the one with the fewest bytes. Campaigns run it again by case and seed."""

    folder: str
    size_bytes: int
    case: Mapping[str, Any]
    seed: int


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A ledger's entry for one signature."""

    id: str
    signature: Signature
    found: Mapping[str, int] = {}  # campaign -> runs that showed it
    faults: Mapping[str, int] = {}  # the faults of those runs -> runs
    smallest: Smallest | None = None
    reproduced: tuple[int, int] = (0, 0)  # k of N
    known: Mapping[str, str] | None = None  # reason, since
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """A ledger. It is immutable: methods that change it return a new one."""

    nights: Mapping[str, Night] = field(default_factory=dict)
    entries: Mapping[str, Entry] = field(default_factory=dict)

    def of(self, signature: Signature) -> Entry | None:
        """The entry of this cause, by its fields."""
        return next((entry for entry in self.entries.values() if entry.signature == signature), None)

    def knows(self, signature: Signature) -> bool:
        """Whether this cause is marked as known."""
        entry = self.of(signature)
        return entry is not None and entry.known is not None

    def named(self, word: str) -> Entry:
        """The entry with this id, or the beginning of it; FloodmarkError where there is none, or several."""
        found = [entry for id_, entry in sorted(self.entries.items()) if id_.startswith(word)]
        if len(found) != 1 or not word:
            there = ", ".join(sorted(self.entries)[:20]) or "none"
            what = "no signature" if not found else f"{len(found)} signatures"
            raise FloodmarkError(f"the ledger has {what} {word!r}; it has: {there}")
        return found[0]

    def nights_with(self, entry: Entry) -> list[str]:
        """The campaigns that showed it, the earliest first."""
        return sorted(entry.found, key=lambda night: (self.nights[night].began_at, night))

    def with_night(self, name: str, night: Night) -> "Ledger":
        """With the current state of this campaign, which replaces its earlier state."""
        return replace(self, nights={**self.nights, name: night})

    def with_finding(self, signature: Signature, night: str, runs: int, *, faults: Mapping[str, int] = {},
                     smallest: Smallest | None = None) -> "Ledger":
        entry = self.of(signature) or Entry(id=signature.id, signature=signature)
        seen = [one for one in (entry.smallest, smallest) if one is not None]
        known = replace(self, entries={**self.entries, entry.id: entry})
        return known.changed(
            entry.id, found={**entry.found, night: runs},
            faults={name: max(faults.get(name, 0), entry.faults.get(name, 0))
                    for name in {*faults, *entry.faults}},
            smallest=min(seen, key=lambda one: (one.size_bytes, one.folder), default=None))

    def changed(self, id_: str, **changes: Any) -> "Ledger":
        entry = msgspec.structs.replace(self.entries[id_], **changes)
        return replace(self, entries={**self.entries, id_: entry})


def with_findings(ledger: Ledger, state: State, about: Mapping[str, Any], folder: Path) -> Ledger:
    """The ledger with everything this campaign has found so far, replacing its earlier entries."""
    name, runs = str(about["id"]), state.runs()
    ledger = ledger.with_night(name, Night(began=str(about["began"]), version=str(about["version"]),
                                           commit=about["commit"], runs=dict(judged_by_system(runs))))
    for signature, showing in runs_by_signature(runs).items():
        least = smallest(showing)
        ledger = ledger.with_finding(
            signature, name, len(showing), faults=Counter(run.case.faults for run in showing),
            smallest=Smallest(folder=str(folder / least.folder), case=case_to_json(least.case),
                              seed=least.seed, size_bytes=least.size_bytes))
        entry = ledger.of(signature)
        assert entry is not None
        if tried := [shown for shown in state.reproductions(entry.id) if shown is not None]:
            ledger = ledger.changed(entry.id, reproduced=(sum(tried), len(tried)))
    return ledger


# -- the file -----------------------------------------------------------------------------------------------

def path_of(about: Mapping[str, Any], folder: Path) -> Path:
    """The ledger of the campaign in this folder: as its campaign.json says, else beside the folder."""
    return Path(str(about.get("ledger") or folder.parent / "ledger.json"))


def load(path: Path) -> Ledger:
    """Read the ledger; an empty one where there is no file. FloodmarkError where the file is no ledger."""
    try:
        data = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return Ledger()
    except OSError as error:
        raise FloodmarkError(f"cannot read the ledger {path}: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        why = f"is damaged (an unfinished merge?): {error}"
        raise FloodmarkError(f"the ledger {path} {why}") from error
    form = data.get("format") if isinstance(data, dict) else None
    if isinstance(form, int) and form > FORMAT:
        raise FloodmarkError(f"the ledger {path} is of format {form}, this floodmark reads {FORMAT}: a newer "
                             "version of floodmark wrote it: update floodmark, or name another --ledger")
    try:
        if form != FORMAT:
            raise ValueError(f"its format is {form!r}")
        nights = msgspec.convert(data["campaigns"], dict[str, Night])
        for id_, row in data["signatures"].items():
            cause = row["signature"]
            row |= {"id": id_, "signature": {**cause, "finding": RENAMED.get(cause["finding"],
                                                                             cause["finding"])}}
        entries = msgspec.convert(data["signatures"], dict[str, Entry])
        if strange := {night for entry in entries.values() for night in entry.found} - nights.keys():
            raise ValueError("it counts runs of campaigns that it does not list: "
                             f"{', '.join(sorted(strange))}")
    except (KeyError, TypeError, ValueError, AttributeError, msgspec.ValidationError) as error:
        raise FloodmarkError(f"{path} is not a ledger: {error!r}") from error
    return Ledger(nights=nights, entries=entries)


def save(path: Path, ledger: Ledger) -> None:
    """Replace the file by rename, behind a link the file itself; it is on disk when this returns."""
    write_whole(path.resolve(), as_bytes(ledger), durable=True)


def as_bytes(ledger: Ledger) -> bytes:
    signatures = msgspec.to_builtins(ledger.entries)
    for entry in signatures.values():
        del entry["id"]
    data = {"format": FORMAT, "signatures": signatures, "campaigns": msgspec.to_builtins(ledger.nights)}
    return orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the ledger's lock; other writers wait."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}"):
            left.unlink(missing_ok=True)  # from a writer that was killed: a running one would hold the lock
        yield
