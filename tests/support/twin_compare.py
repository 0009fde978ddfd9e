"""Makes the verdicts of the product's judge and of the twin comparable; and varies what runs promise."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import twin
from damages import insert

from floodmark.checkers.laws.finding_names import FILES, LAWS, MADE
from histories import RunFolder


def other_promises(random: Random) -> dict[str, Any]:
    """One guarantee with an unusual value."""
    return random.choice((
        {"acks": "1"}, {"acks": "0"}, {"retries": 5}, {"retries": 5, "idempotence": True}, {"flush": "every"},
        {"unclean_leader_election": True}, {"min_insync_replicas": 1}, {"min_insync_replicas": 3},
        {"isolation": "read_uncommitted"}, {"acks": "-1"}, {"acks": -1}, {"acks": 1}, {"acks": None},
        {"ack": "1"}, {"min_insync_replicas": "2"}, {"min.insync.replicas": 1}, {"flush": True},
        {"unclean_leader_election": "yes"}, {"unclean_leader_elections": False}, {"retries": "5"},
        {"retries": 5, "idempotence": 1}, {"isolation": "none"}, {"exactly_once": "on"}))


def other_sights(random: Random) -> dict[str, Any]:
    """run.json's `observes` of a system that shows less; sometimes an invalid one."""
    if random.random() < 0.1:
        return {"observes": random.choice((None, 7, {"dumps": "no"}, {"trace": "all"}, {"trace": [1]}))}
    promised = {name: random.random() < 0.6 for name in ("dumps", "replicas") if random.random() < 0.8}
    needs = frozenset().union(*(law.needs for law in LAWS.values())) - FILES
    events = sorted(needs | {"fetch", "checkpoint", "crash"})
    some = random.choice(([], events, ["elect", "isr", "truncate"], sorted(set(events) - {"ack"}),
                          random.sample(events, random.randrange(len(events)))))
    return {"observes": {**promised, "trace": some} if random.random() < 0.8 else promised}


def other_permissions(folder: RunFolder, random: Random) -> None:
    """For a run whose trace has unclean elections: the setting may be off, or missing, and the nemesis may
    have requested some elections at about the time of one."""
    elections = [line["time"] for line in folder.trace or [] if line.get("clean") is False
                 and line["event"] == "elect"]
    if not elections:
        return
    if random.random() < 0.6:
        folder.run["guarantees"]["unclean_leader_election"] = random.choice((False, False, False, None, 1))
    for _ in range(random.choice((0, 1, 1, 2))):
        error = folder.run.get("clock_error_ns") or 0
        began = random.choice(elections) + random.choice((-3, -1, 0, 1, 3)) * (error // 2 + 1)
        index = next((line["index"] for line in folder.lines if line["time"] >= began), len(folder.lines))
        keys = random.choice((None, [], [0], [1], [0, 1]))
        insert(folder, index, -1, "info", "elect", fault={
            "nodes": [], "unclean": random.random() < 0.8, "began": began,
            **({} if keys is None else {"partitions": keys})})


def as_dict(verdict: Any) -> dict[str, Any]:
    findings = [{"name": one.name, "class": one.klass, "permitted_by": one.permitted_by, "count": one.count}
                for one in verdict.findings]
    left_out = sorted(name for entry in verdict.not_made for name in entry.names)
    return {"valid": verdict.valid, "findings": findings, "not_made": left_out,
            "unknown": {name for unknown in verdict.unknown for name in unknown.names}}


def spoken(verdict: dict[str, Any]) -> tuple[Any, ...]:
    """The comparable part of a verdict: without checks that only one of the two makes."""
    known = {*twin.NAMES} & {*MADE} | {twin.UNFIT}
    return (verdict["valid"],
            sorted((one["name"], one["class"], one["permitted_by"] or "", one["count"])
                   for one in verdict["findings"] if one["name"] in known),
            sorted(set(verdict["unknown"]) & known), sorted(set(verdict.get("not_made", ())) & known))


def differences(stories: Sequence[tuple[str, Path]]) -> list[str]:
    """Where the judge, which gets all folders in one call, and the twin differ; each comes with its story."""
    from floodmark.checkers.judge.job import SparkJudge

    verdicts = SparkJudge().judge([path for _, path in stories])
    assert len(stories) == len(verdicts)
    found = []
    for (story, path), verdict in zip(stories, verdicts, strict=True):
        wanted, judged = spoken(twin.judge(path)), spoken(as_dict(verdict))
        if wanted != judged:
            found.append(f"{path}: {story}\n  twin  {wanted}\n  judge {judged}")
    return found
