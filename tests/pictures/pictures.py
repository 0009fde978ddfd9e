"""The README's pictures, made anew from a run of the demo: `make pictures` (`--runs FOLDER --text FILE`:
from what `floodmark demo --out FOLDER > FILE` has left).

Two views of the page of double-failover on high-watermark: the log viewer, three of its steps as its own
function draws them, and the rails of the run; and the demo's table as a terminal showed it. Each in light and
dark.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from browser import chromium, opened

from floodmark.harness.report.run_page import write_report

PICTURES = Path(__file__).parents[2] / "histories" / "pictures"
RUN = "double-failover-high-watermark"
SCHEMES = ("light", "dark")
LETTER = 7.3  # pixels of a letter of the terminal
LINE = 19
PAD = 22
BAR = 34  # the terminal's top, with its dots
TEXT = 44  # letters in a line of a step's sentence
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif'
MONO = 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace'
COLOURS: Mapping[str, str] = {"INVALID": "bad", "valid": "good"}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One step: its name, its sentence, and the viewer's drawing of it (an SVG element)."""

    name: str
    said: str
    drawing: str

    @property
    def size(self) -> tuple[float, float]:
        found = re.match(r'<svg [^>]*viewBox="0 0 ([\d.]+) ([\d.]+)"', self.drawing)
        assert found is not None, self.drawing[:200]
        return float(found[1]), float(found[2])


def document(width: float, height: float, label: str, style: str, parts: Sequence[str]) -> str:
    """An SVG file that loads nothing and runs no script."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img" aria-label="{escape(label)}"><style>{style}</style>'
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="10"/>'
        + "".join(parts) + "</svg>\n"
    )  # fmt: skip


def strip(frames: Sequence[Frame], label: str, style: str) -> str:
    """The steps side by side, each as wide as its drawing."""
    parts, left, foot = [], float(PAD), 0.0
    top = 62 + 20 * max(len(lines_of(frame)) for frame in frames)
    for frame in frames:
        width, height = frame.size
        parts.append(f'<text class="head" x="{left:g}" y="36">{escape(frame.name)}</text>')
        parts += [f'<text class="said" x="{left:g}" y="{60 + 20 * number}">{escape(line)}</text>'
                  for number, line in enumerate(lines_of(frame))]
        parts.append(frame.drawing.replace("<svg ", f'<svg x="{left:g}" y="{top}" ', 1))
        left, foot = left + max(width, 300) + 6, max(foot, top + height)
    return document(left + PAD - 20, foot + 8, label, style, parts)


def lines_of(frame: Frame) -> list[str]:
    return textwrap.wrap(frame.said, TEXT)


def alone(drawing: str, width: float, height: float, label: str, style: str,
          cursor: float | None = None) -> str:
    """One drawing on a card; cursor: where the cursor's line is, in the drawing's pixels."""
    line = (f'<line class="cursor" x1="{PAD + cursor:.1f}" x2="{PAD + cursor:.1f}" y1="{PAD - 6}" '
            f'y2="{PAD + height - 22:g}"/>') if cursor is not None else ""  # fmt: skip
    placed = drawing.replace("<svg ", f'<svg x="{PAD}" y="{PAD - 6}" ', 1)
    return document(width + 2 * PAD, height + 2 * PAD - 12, label, style, [placed, line])


def terminal(lines: Sequence[str], label: str, style: str) -> str:
    """A terminal's screen. Each word has its column, whatever the font."""
    width = 2 * PAD + LETTER * max(map(len, lines))
    height = BAR + PAD + LINE * len(lines)
    parts = [f'<circle class="dot" cx="{PAD + 18 * at}" cy="{BAR / 2 + 2:g}" r="5"/>' for at in range(3)]
    for number, line in enumerate(lines):
        y = BAR + 18 + LINE * number
        parts += [
            f'<text class="{COLOURS.get(word, "rule" if set(word) == {"-"} and len(word) > 1 else "out")}" '
            f'x="{PAD + LETTER * at:.1f}" y="{y}" textLength="{LETTER * len(word):.1f}">{escape(word)}</text>'
            for at, word in words_of(line)]  # fmt: skip
    return document(width, height, label, style, parts)


def words_of(line: str) -> Iterator[tuple[int, str]]:
    """The parts of a line between two or more spaces, each with its column."""
    for found in re.finditer(r"\S+(?: \S+)*", line):
        yield found.start(), found[0]


def style_of(colours: Mapping[str, str], rules: str = "") -> str:
    """The style. colours: the page's, by name without the dashes. rules: the page's, for its own drawings."""
    named = "".join(f"--{name}:{value};" for name, value in colours.items())
    return (
        f":root{{{named}}}.card{{fill:var(--card);stroke:var(--edge)}}"
        f".head{{font:700 15px {FONT};fill:var(--ink)}}.said{{font:13.5px {FONT};fill:var(--grey)}}"
        ".cursor{stroke:var(--ink);stroke-width:1.6;stroke-dasharray:5 4}"
        f".out,.bad,.good,.rule{{font:12.3px {MONO};fill:var(--ink);white-space:pre}}"
        ".bad{fill:var(--red);font-weight:700}.good{fill:var(--green)}.rule{fill:var(--grey)}"
        f".dot{{fill:var(--faint)}}{rules}"
    )



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
