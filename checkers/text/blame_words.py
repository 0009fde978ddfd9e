"""Writes the sentence about what is to blame for a finding (judge/blame.py finds the line)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.text.words import WORDS, Row, sentence_in

# Steps that are no findings (judge/blame.py says what they are).
EARLY_COMMIT, EARLY_FETCH, EARLY_DIVERGED = "early-commit", "early-fetch", "early-diverged"
HW_AHEAD = "hw-ahead"
PROPOSAL, BY_CONTROLLER = "isr-proposal", "isr-by-controller"
_OWN_CACHE = ("cache", "cache above LEO")
_UNDECIDED = "nobody can tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """known: the sentence names the wrong step; else it says why nobody can tell which that was."""

    text: str
    known: bool

    @property
    def as_json(self) -> dict[str, Any]:
        """An example's `blame` in verdict.json."""
        return {"text": f"{self.text}.", "known": self.known}


def undecided(why: str) -> Blame:
    return Blame(text=f"{_UNDECIDED}: {why}", known=False)


NO_STEP = undecided("no line of the trace shows a wrong step")


def blame_in(example: Mapping[str, Any]) -> str:
    """`To blame: n1, which ...`, of an example of verdict.json; empty if it has no blame."""
    return f"To blame: {example['blame']['text']}" if example.get("blame") else ""


def knows_blame(example: Mapping[str, Any]) -> bool:
    """Whether the judge names a wrong step in this example."""
    return bool(example.get("blame")) and example["blame"]["known"] is True


def with_blame_apart(example: Mapping[str, Any]) -> Mapping[str, Any]:
    """An example as it is today; those of earlier versions have the blame at the end of `text`, and
    in it alone the line that shows the finding."""
    text, mark, blame = str(example.get("text")).partition(" To blame: ")
    if not mark or "blame" in example:
        return example
    own = re.search(r"\(([^()]+), seq (\d{1,18}) of its trace\)", text)
    shown_by = {} if own is None else {"shown_by": {"node": own[1], "seq": int(own[2])}}
    return {**example, "text": text, "blame": {"text": blame, "known": _UNDECIDED not in blame, **shown_by}}


def words_without_line(name: str, row: Row) -> Blame:
    """The sentence where no line of the trace is to blame."""
    in_one_log = name == names.MALFORMED_LOG and row.get("nodes")
    if in_one_log or (name == names.EPOCH_LINEAGE and row.get("how") in _OWN_CACHE):
        own = f"{listed(row.get('nodes'))}, whose own log that is; by which step, no line of the trace shows"
        return Blame(text=own, known=True)
    return NO_STEP


def words_of_blame(first: Row, row: Row) -> Blame | None:
    """Who is to blame, if `first` is the earliest line about it; None: the finding's text says it."""
    if first["name"] == names.UNSAFE_TRUNCATION:
        return of_truncation(first, row)
    who = listed(first["nodes"])
    if first["start_seq"] is not None:
        return undecided(WORDS["shared"]["started"].format_map({**first, "who": who}))
    known = {key: first[key] for key in ("node", "seen")} | {"offset": row["offset"], "leo": first["offset"]}
    for kind, make in (("blame", _known), ("undecided", undecided)):
        sentence = sentence_in(first["name"], kind, first["how"])
        if sentence is not None:
            return make(sentence.format(**known, who=who))
    return None


def _known(text: str) -> Blame:
    return Blame(text=text, known=True)


def of_truncation(first: Row, row: Row) -> Blame | None:
    """A follower truncates what its leader lacks, as far as the leader's answer says."""
    answer, epoch, how = first["answer"] or {"epoch": -1, "end": None}, row["epoch"], "held"
    if first["cause"] == "hw":
        if first["seq"] == row["seq"] and first["node"] == row["node"]:
            return None
        how = "hw"
    elif first["answer"] is None:
        how = "unanswered"
    # A record of a later epoch than the answer's is cut rightly, also below that end (KIP-279).
    elif answer["end"] > row["offset"] and (
            answer["epoch"] < 0 or (epoch is not None and epoch <= answer["epoch"])):
        how = "answered"
    elif not first["held"]:
        how = "unheld"
    ends = f"epoch {answer['epoch']}" if answer["epoch"] >= 0 else "its log"
    words = WORDS[names.UNSAFE_TRUNCATION][f"blame {how}"]
    made = _known if how in ("hw", "answered") else undecided
    return made(words.format_map({**first, "leader": first["leader"] or "its leader", "offset": row["offset"],
                                  "ends": f"{ends} ends at {answer['end']}"}))  # fmt: skip


def listed(nodes: Sequence[str] | None) -> str:
    some = list(nodes or ())
    return ", ".join(some[:-1]) + (" and " if len(some) > 1 else "") + some[-1] if some else "a replica"
