"""Vega-Lite charts of a run over time: nodes, controller and clients; LEO and HW of each replica; latency and
throughput. It also has the library that draws them, which is put into the page.

Rules
1. A specification names its data; charts.js fills in the data for the time shown, and draws.
2. No text of a run is in an expression: nodes are values of data, and titles of axes.
3. All drawings have the same left and right margin, so that one cursor crosses them all.

The library is Vega-Lite, as vl-convert bundles it: 0.9 MB, 0.3 compressed. Plotly's is 4.8 MB, 1.5
compressed.
"""

import contextlib
import functools
from collections.abc import Iterator
from importlib.metadata import version
from string import Template
from typing import Any

from floodmark.harness.errors import FloodmarkError
from floodmark.harness.report.html.clients import silence_text
from floodmark.harness.report.html.elements import esc, package_file
from floodmark.harness.report.model import RunFacts
from floodmark.harness.run import write_whole
from floodmark.harness.user_cache import cache_folder

LEFT = 92  # pixels for the names of lanes and axes
LANE = 34
SILENCES = 8  # listed under the drawing
Spec = dict[str, Any]


@functools.cache
def library() -> str | None:
    """The script of Vega and Vega-Lite; None if vl-convert is not installed. Bundling takes more than a
    second, so the script is kept in the user's cache."""
    try:
        import vl_convert
    except ImportError:
        return None
    cached = cache_folder() / f"vega-{version('vl-convert-python')}.js"
    try:
        return cached.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    with contextlib.suppress(FloodmarkError):  # without a cache it is bundled each time
        write_whole(cached, script.encode())
    return script


def section(facts: RunFacts) -> str:
    """The HTML frame of the drawings; empty if there is nothing to draw."""
    if library() is None:
        return (
            '<section><h2>The run</h2><div class="card">Without vl-convert-python there are no drawings of '
            "the run: pip install vl-convert-python, and make this page again.</div></section>"
        )
    if not facts.clients.ops and not facts.traced.is_there:
        return ""
    logs = package_file("logs.html") if facts.traced.points else ""
    quiet = [silence_text(one) for one in facts.clients.silences]
    more = f", and {len(quiet) - SILENCES} times more" if len(quiet) > SILENCES else ""
    told = f"Sends were tried, and none was acked: {', '.join(quiet[:SILENCES])}{more}." if quiet else ""
    return Template(package_file("run.html")).substitute(
        logs=logs, silences=f"<p class=small>{esc(told)}</p>" if told else "")


def specs(nodes: list[str], *, controller: bool, logs: bool) -> dict[str, Spec]:
    """The specifications by the HTML element they are drawn in. controller: whether it has a lane."""
    lanes = [*nodes, "controller"] if controller else nodes
    drawn = {
        "plot-rails": stacked([*([rails(lanes)] if lanes else []), clients()]),
        "plot-load": stacked([latency(), throughput()]),
    }
    return (
        {**drawn, "plot-logs": stacked([replica(node, last=node == nodes[-1]) for node in nodes])}
        if logs
        else drawn
    )


def stacked(views: list[Spec]) -> Spec:
    return {
        "vconcat": views,
        "spacing": 10,
        "params": [{"name": "t0", "value": 0}, {"name": "t1", "value": 1}],
        "resolve": {"scale": {"color": "independent", "shape": "independent"}},
    }


def x(field: str, *, axis: bool = False) -> Spec:
    """A time in ms, in the window that the page shows."""
    return {
        "field": field,
        "type": "quantitative",
        "title": None,
        "scale": {"domainMin": {"expr": "t0"}, "domainMax": {"expr": "t1"}, "nice": False, "zero": False},
        "axis": {
            "labelExpr": "t1 > 2000 ? format(datum.value / 1000, '.3~f') + ' s' : "
            "format(datum.value, ',') + ' ms'",
            "tickCount": 8,
            "labels": axis,
            "ticks": axis,
            "labelFlush": True,
            "labelOverlap": True,
            "labelSeparation": 10,
        },
    }


def lane(field: str, lanes: list[str]) -> Spec:
    return {
        "field": field,
        "type": "nominal",
        "title": None,
        "scale": {"domain": lanes},
        "axis": {
            "minExtent": LEFT,
            "maxExtent": LEFT,
            "domain": False,
            "ticks": False,
            "grid": True,
            "labelFontWeight": "bold",
            "labelLimit": LEFT - 8,
            "labelAlign": "left",
            "labelPadding": LEFT - 2,
        },
    }


def number(field: str, title: str | list[str], *, ticks: int = 3, short: bool = False, **scale: Any) -> Spec:
    """A number on the y axis, its name in the left margin. short: 200k for 200,000."""
    high = "datum.value < 10000 ? format(datum.value, ',d') : format(datum.value, '.3~s')"
    axis = {
        "minExtent": LEFT,
        "maxExtent": LEFT,
        "tickCount": ticks,
        "domain": False,
        "labelExpr": "!datum.value ? '' : datum.value < 10 ? format(datum.value, '.3~r') : "
        + (high if short else "format(datum.value, ',d')"),
        "titleAngle": 0,
        "titleAlign": "left",
        "titleX": 2 - LEFT,
        "titleFontWeight": "bold",
        "titleLimit": LEFT - 34,
        "titleBaseline": "middle",
    }
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def tips(*names: str) -> list[Spec]:
    return [{"field": name} for name in names]


EPOCHS = {"field": "colour", "type": "nominal", "legend": None,
          "scale": {"domain": ["e0", "e1", "e2", "e3", "e4"], "range": "category"}}  # fmt: skip


def layer(data: str, kind: str, mark: Spec, **encoding: Any) -> Spec:
    """A mark of the named data, clipped at the drawing's edge."""
    channels = {channel: value for channel, value in encoding.items() if value is not None}
    return {"data": {"name": data}, "mark": {"type": kind, "clip": True, **mark}, "encoding": channels}


def rails(lanes: list[str]) -> Spec:
    """A lane for each node and one for the controller: faults, leaders, truncations, elections."""
    y, high = lane("node", lanes), LANE - 8
    solid = {"condition": {"test": "datum.blamed", "value": 1}, "value": 0}
    return {"height": LANE * len(lanes), "width": 400, "layer": [
        layer("bands", "bar", {"height": high, "style": "band"}, x=x("from"), x2={"field": "to"}, y=y,
              tooltip=tips("label", "node", "at", "lasted")),
        layer("strikes", "tick", {"thickness": 2, "height": high, "style": "strike"}, x=x("from"), y=y,
              tooltip=tips("label", "node", "at")),
        layer("reigns", "bar", {"height": 6, "cornerRadius": 3}, x=x("from"), x2={"field": "to"}, y=y,
              color=EPOCHS, tooltip=tips("leads", "epoch", "partition")),
        layer("labels", "text", {"align": "center", "dy": 9, "style": "bandtext"}, x=x("middle"), y=y,
              text={"field": "label"}),
        layer("epochs", "text", {"align": "left", "dx": 2, "dy": -9, "style": "note"}, x=x("from"), y=y,
              text={"field": "label"}),
        layer("cuts", "point", {"shape": "triangle-down", "size": 70, "filled": True, "yOffset": 11,
                                "style": "cut"},
              x=x("t"), y=y, fillOpacity=solid, tooltip=tips("truncated", "node", "at")),
        layer("elections", "point", {"filled": True, "size": 75}, x=x("t"), y=y, color=EPOCHS,
              tooltip=tips("elected", "epoch", "isr", "at")),
        layer("unclean", "point", {"shape": "diamond", "size": 130, "style": "cut", "fillOpacity": 0},
              x=x("t"), y=y, tooltip=tips("elected", "epoch", "isr", "at")),
    ]}  # fmt: skip


def clients() -> Spec:
    """The clients' lane: op counts for each column of pixels, or single ops if there are few."""
    types, axis = ["ok", "info", "fail"], x("t", axis=True)
    colour = {"field": "type", "type": "nominal", "legend": None,
              "scale": {"domain": types, "range": "ordinal"}}
    shape = {"field": "type", "type": "nominal", "legend": None,
             "scale": {"domain": types, "range": ["circle", "square", "cross"]}}  # fmt: skip
    middle = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [0, 1]}}
    counts = number("from_count", "clients", ticks=2, short=True, nice=True)
    return {"height": 58, "width": 400, "resolve": {"scale": {"y": "independent"}}, "layer": [
        layer("silences", "rect", {"style": "band"}, x=x("from", axis=True), x2={"field": "to"},
              tooltip=tips("label")),
        layer("counts", "rect", {}, x=x("from", axis=True), x2={"field": "to"}, color=colour, y=counts,
              y2={"field": "to_count"}, tooltip=tips("type", "count", "at")),
        layer("ops", "point", {"filled": True, "size": 60}, x=axis, y=middle, color=colour, shape=shape,
              tooltip=tips("op", "type", "lasted", "at")),
        layer("silent", "text", {"align": "center", "dy": -20, "style": "bandtext"}, x=x("middle", axis=True),
              y=middle, text={"field": "label"}),
        layer("lost", "point", {"size": 150, "style": "cut", "filled": False, "strokeWidth": 2.5}, x=axis,
              y=middle, tooltip=tips("what", "at")),
        *(layer("lost", "text", {"align": "left", "dx": 11, "style": style}, x=axis, y=middle,
                text={"field": "what"}) for style in ("halo", "bandtext")),
    ]}  # fmt: skip


def faults_layer(*, axis: bool = False) -> Spec:
    """The faults as bands over the full height."""
    return layer("faults", "rect", {"style": "band"}, x=x("from", axis=axis), x2={"field": "to"},
                 tooltip=tips("label", "at", "lasted"))  # fmt: skip


def line(data: str, field: str, y: Spec, style: str, *, axis: bool = False, **mark: Any) -> Spec:
    return layer(data, "line", {"style": style, "strokeJoin": "round", **mark}, x=x("t", axis=axis),
                 y={**y, "field": field}, order={"field": "t", "type": "quantitative"})  # fmt: skip


def replica(node: str, *, last: bool) -> Spec:
    """LEO and HW of one replica as steps. The data's names are made from the node's lane."""
    y, steps = number("leo", node, ticks=2, zero=False, padding=8), "step-after"
    ends = {"align": "right", "baseline": "bottom", "dy": -3, "style": "note", "clip": False}
    return {"height": 62, "width": 400, "layer": [
        *(line(f"points-{node}", field, y, field, axis=last, interpolate=steps) for field in ("leo", "hw")),
        layer(f"end-{node}", "text", ends, x=x("t", axis=last), y=y, text={"field": "label"}),
    ]}  # fmt: skip


def latency() -> Spec:
    y = number("p50", ["ms an", "op"], type="log", nice=False, padding=6)
    fields = (("max", "longest"), ("p99", "p99"), ("p50", "p50"))
    return {"height": 110, "width": 400, "layer": [faults_layer(), *(
        each for field, style in fields for each in (
            line("latency", field, y, style),
            layer("lonely", "point", {"filled": True, "size": 26, "style": style}, x=x("t"),
                  y={**y, "field": field}))
        )]}  # fmt: skip


def throughput() -> Spec:
    y = number("acked", ["acked", "/ s"], short=True, nice=True)
    return {"height": 90, "width": 400, "layer": [
        faults_layer(axis=True), line("rates", "acked", y, "acked", axis=True)]}  # fmt: skip


def blocks(facts: RunFacts, nodes: list[str]) -> Iterator[tuple[str, Any]]:
    """Yields the data blocks that the drawings need in the page: (name, JSON), and the library's text."""
    bundle = library()
    if bundle is not None and section(facts):
        yield "specs", specs(nodes, controller=facts.traced.is_there, logs=bool(facts.traced.points))
        yield "vega", bundle
