"""The verdicts of the product's judge and of the twin, made comparable; and promises to vary runs with."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import twin

from checkers.names import MADE


def other_promises(random: Random) -> dict[str, Any]:
    """One guarantee that is not as usual."""
    return random.choice((
        {"acks": "1"}, {"acks": "0"}, {"retries": 5}, {"retries": 5, "idempotence": True}, {"flush": "every"},
        {"unclean_leader_election": True}, {"min_insync_replicas": 1}, {"min_insync_replicas": 3},
        {"isolation": "read_uncommitted"}))


def as_dict(verdict: Any) -> dict[str, Any]:
    findings = [{"name": one.name, "class": one.klass, "permitted_by": one.permitted_by, "count": one.count}
                for one in verdict.findings]
    return {"valid": verdict.valid, "findings": findings,
            "unknown": {name for unknown in verdict.unknown for name in unknown.names}}


def spoken(verdict: dict[str, Any]) -> tuple[Any, ...]:
    """The comparable part of a verdict: checks that only one of the two makes are left out."""
    known = {*twin.NAMES} & {*MADE} | {twin.UNFIT}
    return (verdict["valid"],
            sorted((one["name"], one["class"], one["permitted_by"] or "", one["count"])
                   for one in verdict["findings"] if one["name"] in known),
            sorted(set(verdict["unknown"]) & known))


def differences(stories: Sequence[tuple[str, Path]]) -> list[str]:
    """Where the judge, asked about all folders in one call, and the twin do not say the same; a story goes
    with each."""
    from checkers.judge import SparkJudge

    verdicts = SparkJudge().judge([path for _, path in stories])
    assert len(stories) == len(verdicts)
    told = []
    for (story, path), verdict in zip(stories, verdicts, strict=True):
        wanted, judged = spoken(twin.judge(path)), spoken(as_dict(verdict))
        if wanted != judged:
            told.append(f"{path}: {story}\n  twin  {wanted}\n  judge {judged}")
    return told
