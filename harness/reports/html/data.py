"""The page's data as JSON: the stories for the viewer, and the run through time for the drawings. Pure.

Times are milliseconds of the run with three digits, so that a browser's numbers hold them exactly.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.reports.html.facts import RunFacts
from floodmark.harness.reports.html.lines import items, text, whole

MARKS = 4_000


def ms(time_ns: int | None) -> float:
    return round((time_ns or 0) / 1e6, 3)


def data_of(facts: RunFacts) -> dict[str, Any]:
    """All that the scripts of the page read."""
    return {
        "nodes": nodes_of(facts), "partitions": partitions_of(facts), "span": [0, ms(facts.last_ns)],
        "opens": opening(facts),
        "stories": [*(event.story for event in facts.events if event.story is not None), *facts.finals],
        "spans": [
            {"node": span.node, "nodes": span.nodes, "label": span.label, "from": ms(span.began_ns),
             "lasts": span.until_ns is not None,
             "to": ms(span.until_ns if span.until_ns is not None else span.began_ns)}
            for span in facts.spans[:MARKS]],
        **of_the_trace(facts),
        "ops": facts.clients.columns,
        "acked": [
            {"p": one.partition, "o": one.offset, "v": one.value, "t": ms(one.ended_ns),
             "lost": (one.partition, one.value) in facts.lost}
            for one in facts.clients.acked[:MARKS]],
    }  # fmt: skip


def of_the_trace(facts: RunFacts) -> dict[str, Any]:
    """Who led, was elected and truncated, and each replica's LEO and HW."""
    return {
        "reigns": [
            {"node": one.node, "p": one.partition, "epoch": one.epoch, "from": ms(one.since_ns),
             "to": ms(one.until_ns if one.until_ns is not None else facts.last_ns)}
            for one in facts.traced.reigns[:MARKS]],
        "elections": [
            {"t": ms(whole(line, "time")), "p": whole(line, "partition"), "epoch": whole(line, "epoch"),
             "leader": text(line, "leader") or "nobody", "clean": line.get("clean") is not False,
             "isr": " ".join(map(str, items(line, "isr")))}
            for line in facts.traced.elections[:MARKS]],
        "truncations": [
            {"t": ms(whole(line, "time")), "node": text(line, "node"), "p": whole(line, "partition"),
             "from": whole(line, "from"), "to": whole(line, "to"), "blamed": number in facts.blamed}
            for number, line in facts.traced.truncations[:MARKS]],
        "points": [
            {"node": node, "p": partition, "at": [[ms(time), leo, hw] for time, leo, hw in points]}
            for (node, partition), points in sorted(facts.traced.points.items())],
    }  # fmt: skip


def nodes_of(facts: RunFacts) -> list[str]:
    return [str(node) for node in items(dict(facts.about), "nodes")] or sorted(
        {node for node, _ in facts.traced.points}
    )


def partitions_of(facts: RunFacts) -> list[int]:
    """Those with findings first."""
    found = [event.story["partition"] for event in facts.events if event.story is not None]
    partitions = facts.about.get("partitions")
    told = (
        sorted(int(key) for key in partitions if str(key).isdecimal())
        if isinstance(partitions, Mapping)
        else sorted({partition for _, partition in facts.traced.points})
    )
    return list(dict.fromkeys([*found, *told]))


def opening(facts: RunFacts) -> Sequence[float]:
    """The time that the drawings open on: the finding's, or the whole run."""
    story = next((event.story for event in facts.events if event.story is not None), None)
    times = [step["t"] for step in story["steps"]] if story is not None else []
    if not times:
        return [0, ms(facts.last_ns)]
    margin = max(20.0, (max(times) - min(times)) * 0.12)
    return [max(0.0, min(times) - margin), min(ms(facts.last_ns), max(times) + margin)]
