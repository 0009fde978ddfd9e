"""The README's pictures, made anew from a run of the demo: `make pictures` (`--runs FOLDER --text FILE`:
from what `floodmark demo --out FOLDER > FILE` has left).

Two views of the page of double-failover on high-watermark: the log viewer, three of its steps as its own
function draws them, and the rails of the run; and the demo's table as a terminal showed it. Each in light and
dark.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from browser import chromium, opened
from svg_pictures import Frame, alone, strip, style_of, terminal

from floodmark.harness.report.run_page import write_report

PICTURES = Path(__file__).parents[2] / "histories" / "pictures"
RUN = "double-failover-high-watermark"
SCHEMES = ("light", "dark")
WIDTH = 1180  # of the window, which says how wide the rails are
STYLE = """() => {
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]);
  const root = getComputedStyle(document.documentElement);
  const named = [...rules.find((rule) => rule.selectorText === ":root").style];
  const colours = named.filter((name) => name.startsWith("--"));
  const ofLogs = rules.filter((rule) => (rule.selectorText || "").startsWith("svg.logs"));
  return [Object.fromEntries(colours.map((name) => [name.slice(2), root.getPropertyValue(name).trim()])),
    ofLogs.map((rule) => rule.cssText)];
}"""
STEPS = """() => {
  const story = floodmarkPage.data.stories[0];
  const drawn = (at) => floodmarkViewer.drawing(story, floodmarkViewer.stateAt(story, at));
  return { opens: story.opens, steps: story.steps.map(({ name, text, t, at }) => (
    { name, text, t, drawing: floodmarkViewer.svgOf(drawn(at), name) })) };
}"""
RAILS = """async ([from, to]) => {
  await floodmarkCharts.zoomTo([from, to]);
  const drawing = document.querySelector("#plot-rails svg");
  const plot = drawing.querySelector(".mark-group.role-scope .background");
  const width = Number(drawing.getAttribute("width")), height = Number(drawing.getAttribute("height"));
  const scale = width / drawing.getBoundingClientRect().width;
  const left = plot.getCTM().e * scale, share = (floodmarkPage.cursor - from) / (to - from);
  return { text: new XMLSerializer().serializeToString(drawing), width, height,
    cursor: left + share * plot.getBBox().width };
}"""


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, help="the folder that the demo was told to write into")
    parser.add_argument("--text", type=Path, help="what it printed")
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        runs, text = asked.runs, asked.text
        if runs is None or text is None:
            runs, text = Path(folder) / "demo", Path(folder) / "demo.txt"
            with text.open("wb") as out:
                subprocess.run([sys.executable, "-m", "floodmark.harness", "demo", "--out", str(runs)],
                               stdout=out, check=True)
        page = write_report(runs / RUN, Path(folder) / "report.html")
        shown = text.read_text(encoding="utf-8").partition("\nnext ")[0].rstrip().splitlines()
        with chromium() as browser:
            for scheme in SCHEMES:
                for name, picture in drawn(browser, page, scheme, shown).items():
                    PICTURES.mkdir(exist_ok=True)
                    (PICTURES / f"{name}-{scheme}.svg").write_text(picture, encoding="utf-8")


def drawn(browser: Any, page: Path, scheme: str, shown: Sequence[str]) -> dict[str, str]:
    """All pictures in one scheme."""
    with opened(browser, page, width=WIDTH, scheme=scheme) as seen:
        colours, rules = seen.page.evaluate(STYLE)
        story = seen.page.evaluate(STEPS)
        steps, opens = story["steps"], story["opens"]
        rails = seen.page.evaluate(RAILS, around([one["t"] for one in steps], opens))
    frames = [Frame(name=f"{at + 1}  {steps[at]['name']}", said=steps[at]["text"],
                    drawing=steps[at]["drawing"]) for at in sorted({0, opens, len(steps) - 1})]
    said = "; ".join(frame.name for frame in frames)
    return {
        "logs": strip(frames, f"the replicas' logs: {said}", style_of(colours, "".join(rules))),
        "run": alone(rails["text"], rails["width"], rails["height"],
                     "nodes, controller and clients through time", style_of(colours), rails["cursor"]),
        "demo": terminal(["$ floodmark demo", *shown], "the demo's table, as printed", style_of(colours)),
    }  # fmt: skip


def around(times: Sequence[float], opens: int) -> list[float]:
    """From before the first step to behind those that came soon after the one that is to blame; in ms."""
    first, blamed = times[0], times[opens]
    soon = max(time for time in times if time <= blamed + 4 * max(blamed - first, 10.0))
    margin = 0.15 * (soon - first)
    return [max(0.0, first - margin), soon + 3 * margin]


if __name__ == "__main__":
    main(sys.argv[1:])
