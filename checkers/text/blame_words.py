"""Writes the sentence about what is to blame for a finding (judge/blame.py finds the line)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from floodmark.checkers.laws import finding_names as names
from floodmark.checkers.text.words import Row, sentence_in

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
    """An example as it is today; those of earlier versions have the blame at the end of `text`."""
    text, mark, blame = str(example.get("text")).partition(" To blame: ")
    if not mark or "blame" in example:
        return example
    return {**example, "text": text, "blame": {"text": blame, "known": _UNDECIDED not in blame}}


def words_without_line(name: str, row: Row) -> Blame:
    """The sentence where no line of the trace is to blame."""
    in_one_log = name == names.MALFORMED_LOG and row.get("nodes")
    if in_one_log or (name == names.EPOCH_LINEAGE and row.get("how") in _OWN_CACHE):
        own = f"{listed(row.get('nodes'))}, whose own log that is; by which step, no line of the trace shows"
        return Blame(text=own, known=True)
    return NO_STEP


def words_of_blame(first: Row, row: Row) -> Blame | None:
    """The sentence about what is to blame for `row`, if `first` is the earliest line about it; None: the
    finding's text says it."""
    if first["name"] == names.UNSAFE_TRUNCATION:
        return of_truncation(first, row)
    who = listed(first["nodes"])
    if first["start_seq"] is not None:
        return undecided(
            f"{who} started with LEO {first['start_leo']}, without the record ({who}, seq "
            f"{first['start_seq']} of its trace), and was in the ISR; what its disk should have had, no line "
            "shows")
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
    node, leader, answer = first["node"], first["leader"], first["answer"]
    its_leader = leader or "its leader"
    if first["cause"] == "hw":
        own = first["seq"] == row["seq"] and node == row["node"]
        cut = f"{node}, which truncated its log to {first['seen']} and cut the record"
        return None if own else _known(cut)
    if answer is None:
        return undecided(f"{node} truncated its log to {first['seen']}, and no line shows what {its_leader} "
                         "had answered")
    ends = f"epoch {answer['epoch']} ends at {answer['end']}" if answer["epoch"] >= 0 else (
        f"its log ends at {answer['end']}")
    # A record of a later epoch than the answer's is cut rightly, also below that end (KIP-279).
    epoch = row["epoch"]
    if answer["end"] > row["offset"] and (
            answer["epoch"] < 0 or (epoch is not None and epoch <= answer["epoch"])):
        return _known(f"{node}, which truncated offset {row['offset']} though {its_leader} had answered that "
                      f"{ends}")
    if not first["held"]:
        return undecided(f"{node} truncated its log as {its_leader} had answered, and no line shows which "
                         f"step took the record from {its_leader}")
    return undecided(f"{leader} held the record, and {node} cut it by the answer that {ends}; whether "
                     f"{leader} answered so or {node} misread it, no line shows")


def listed(nodes: Sequence[str] | None) -> str:
    some = list(nodes or ())
    return ", ".join(some[:-1]) + (" and " if len(some) > 1 else "") + some[-1] if some else "a replica"
