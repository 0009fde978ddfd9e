"""Builds the page's data as JSON: the stories for the viewer, and the run over time for the drawings. Pure.

Times are milliseconds of the run with three decimals, which a browser's numbers represent exactly.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.report.html.clients import silence_text
from floodmark.harness.report.model import RunFacts, int_in, items, text

MARKS = 4_000


def ms(time_ns: int | None) -> float:
    return round((time_ns or 0) / 1e6, 3)


def data_of(facts: RunFacts) -> dict[str, Any]:
    """Everything that the scripts of the page read."""
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
        "silences": [{"from": one[0] / 1000, "to": one[1] / 1000, "label": silence_text(one)}
                     for one in facts.clients.silences[:MARKS]],
        "acked": [
            {"p": one.partition, "o": one.offset, "v": one.value, "t": ms(one.ended_ns),
             "lost": (one.partition, one.value) in facts.lost}
            for one in facts.clients.acked[:MARKS]],
    }  # fmt: skip


def of_the_trace(facts: RunFacts) -> dict[str, Any]:
    """The trace's part of the data: leaders, elections, truncations, and each replica's LEO and HW."""
    return {
        "reigns": [
            {"node": one.node, "p": one.partition, "epoch": one.epoch, "from": ms(one.since_ns),
             "to": ms(one.until_ns if one.until_ns is not None else facts.last_ns)}
            for one in facts.traced.reigns[:MARKS]],
        "elections": [
            {"t": ms(int_in(line, "time")), "p": int_in(line, "partition"), "epoch": int_in(line, "epoch"),
             "leader": text(line, "leader") or "nobody", "clean": line.get("clean") is not False,
             "isr": " ".join(map(str, items(line, "isr")))}
            for line in facts.traced.elections[:MARKS]],
        "truncations": [
            {"t": ms(int_in(line, "time")), "node": text(line, "node"), "p": int_in(line, "partition"),
             "from": int_in(line, "from"), "to": int_in(line, "to"), "blamed": number in facts.blamed}
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
    """The partitions, those with findings first."""
    found = [event.story["partition"] for event in facts.events if event.story is not None]
    partitions = facts.about.get("partitions")
    known = (
        sorted(int(key) for key in partitions if str(key).isdecimal())
        if isinstance(partitions, Mapping)
        else sorted({partition for _, partition in facts.traced.points})
    )
    return list(dict.fromkeys([*found, *known]))


def opening(facts: RunFacts) -> Sequence[float]:
    """The time that the drawings show first: the finding's, or all of the run."""
    story = next((event.story for event in facts.events if event.story is not None), None)
    times = [step["t"] for step in story["steps"]] if story is not None else []
    if not times:
        return [0, ms(facts.last_ns)]
    margin = max(20.0, (max(times) - min(times)) * 0.12)
    return [max(0.0, min(times) - margin), min(ms(facts.last_ns), max(times) + margin)]
