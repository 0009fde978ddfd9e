"""Writes the last sentence of a finding's text: what is to blame for it (judge/blame.py finds the line)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.checkers.laws import finding_names as names

BLAMED = " To blame: "  # begins that sentence
UNDECIDED = "nobody can tell"
NO_STEP = f"{UNDECIDED}: no line of the trace shows a wrong step"
# Steps that are no findings (judge/blame.py says what they are).
EARLY_COMMIT, EARLY_FETCH, EARLY_DIVERGED = "early-commit", "early-fetch", "early-diverged"
HW_AHEAD = "hw-ahead"
PROPOSAL, BY_CONTROLLER = "isr-proposal", "isr-by-controller"
_OWN_CACHE = ("cache", "cache above LEO")
_END_IN_WHY = re.compile(r"ends at (\d+)")
Row = Mapping[str, Any]


def split_blame(text: str) -> tuple[str, str]:
    """Split a text into the finding and the sentence about what is to blame; that is empty if there is
    none."""
    found, marker, blame = text.partition(BLAMED)
    return found, f"{marker}{blame}".strip()


def words_without_line(name: str, row: Row) -> str:
    """The sentence where no line of the trace is to blame."""
    if name == names.MALFORMED_LOG or (name == names.EPOCH_LINEAGE and row.get("how") in _OWN_CACHE):
        return f"{listed(row.get('nodes'))}, whose own log that is; by which step, no line of the trace shows"
    return NO_STEP


def words_of_blame(first: Row, row: Row) -> str | None:
    """The sentence about what is to blame for `row`, if `first` is the earliest line about it; None: the
    finding's text says it."""
    if first["name"] == names.UNSAFE_TRUNCATION:
        return of_truncation(first, row)
    if (first["name"], first["how"]) == (names.UNSAFE_ISR, "behind"):
        return f"{UNDECIDED}: the leader may have proposed, or the controller accepted, " + _BEHIND.format(
            who=listed(first["nodes"]))  # fmt: skip
    if first["start_seq"] is not None:
        who = listed(first["nodes"])
        return (f"{UNDECIDED}: {who} started with LEO {first['start_leo']}, without the record ({who}, seq "
                f"{first['start_seq']} of its trace), and was in the ISR; what its disk should have had, no "
                "line shows")  # fmt: skip
    words = _WORDS.get((first["name"], first["how"])) or _WORDS.get((first["name"], None))
    if words is None:
        return None
    known = {key: first[key] for key in ("node", "seen")} | {"offset": row["offset"], "leo": first["offset"]}
    return words.format(**known, who=listed(first["nodes"]))


def of_truncation(first: Row, row: Row) -> str | None:
    """A follower truncates what its leader lacks, as far as the leader's answer says."""
    node, leader, why = first["node"], first["leader"], first["why"]
    told_end = _END_IN_WHY.search(why or "")
    if told_end is None:
        own = first["seq"] == row["seq"] and node == row["node"]
        return None if own else f"{node}, which truncated its log to {first['seen']} and cut the record"
    if int(told_end[1]) > row["offset"]:
        return (f'{node}, which truncated offset {row["offset"]} though its leader had answered with another '
                f'end: "{why}"')  # fmt: skip
    if not first["held"]:
        its_leader = leader or "its leader"
        return (f"{UNDECIDED}: {node} truncated its log as {its_leader} had answered, and no line shows "
                f"which step took the record from {its_leader}")  # fmt: skip
    return (f'{UNDECIDED}: {leader} held the record, and {node} cut it by the answer "{why}"; whether '
            f"{leader} answered so or {node} misread it, no line shows")  # fmt: skip


def listed(nodes: Sequence[str] | None) -> str:
    some = list(nodes or ())
    return ", ".join(some[:-1]) + (" and " if len(some) > 1 else "") + some[-1] if some else "a replica"


_BEHIND = "{who}, which was behind the HW"
_WORDS: dict[tuple[str, str | None], str] = {
    (EARLY_COMMIT, None): "{node}, which as the leader moved its HW over offset {offset} before {who} of its "
    "ISR had appended it",
    (EARLY_FETCH, None): "{who}, which asked its leader {node} for an offset above its own LEO, as if it had "
    "offset {offset}",
    (EARLY_DIVERGED, None): f"{UNDECIDED}: {{node}} moved its HW over offset {{offset}} by a fetch of "
    "{who}, which had another record there; whose step that was, no line shows",
    (HW_AHEAD, None): f"{UNDECIDED}: {{node}} began to lead with an HW of {{seen}} when no leader's HW had "
    "been above {offset}; whether its leader said so or it took it so, no line shows",
    (PROPOSAL, None): "{node}, which as the leader proposed an ISR with " + _BEHIND,
    (BY_CONTROLLER, None): "the controller, which took into the ISR, though no leader had proposed it, "
    + _BEHIND,
    (names.RECOVERY_LOSS, None): "{node}, which started with LEO {leo} although it had held all below {seen}",
    (names.ACK_RULE, "hw"): "{node}, which acked offset {leo} while its HW was {seen}",
    (names.ACK_RULE, "isr"): "{node}, which acked with an ISR of {who}, smaller than min.insync.replicas",
    (names.ACK_RULE, "member"): "{node}, which acked offset {leo} before {who} of its ISR had appended it",
    (names.UNSAFE_ISR, "smaller"): "{node}, which as the leader did not count {who}, in the controller's ISR",
    (names.TWO_LEADERS, None): f"{UNDECIDED}: {{who}} both acted as leader of epoch {{seen}}; whether the "
    "controller gave it to both, no line shows",
    (names.LEADER_INCOMPLETE, None): f"{UNDECIDED}: {{node}} began to lead without the record, and no line "
    "shows whose step took it away",
    (names.CANDIDATE_INCOMPLETE, None): f"{UNDECIDED}: {{who}} lacked the record while in the ISR, and no "
    "line shows whose step that was",
}  # fmt: skip
