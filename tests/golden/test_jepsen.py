"""What `import jepsen` makes of a history: the ops of jepsen.txt (as in support/jepsen_text.py), the
`options` of the command, and below `--` what is in the folder.

An op of the folder has its items as PARTITION:VALUE@OFFSET, the line it was, the time where that is not its
line's, and its fault; then come the lines that the history should have, and what was left out or changed.
`pytest --rewrite` writes what now comes out: then read the diff.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_text import case_as_written, cases_of
from jepsen_text import Imported, edn, imported

from floodmark.harness.op import Op

FILE = "jepsen.txt"
RUN_ONLY = "run.json alone"  # of which the text tells
CASES = cases_of(FILE)


def op_text(op: Op, at: int) -> str:
    items = [f"{one.partition}:{one.value}" + ("" if one.offset is None else f"@{one.offset}")
             for one in (*(op.sends or ()), *(op.reads or ()))]
    keys = [f"of {' '.join(map(str, op.partitions))}"] if op.partitions is not None else []
    late = [f"at {op.time / 1000:g}"] if op.time != at * 1000 else []
    fault = [json.dumps(op.fault)] if op.fault else []
    return " ".join(filter(None, (
        f"{op.process}", op.type.value, op.f, *keys, *items, op.error, *late, *fault)))


def told(run: Imported, *, ops: bool, given: bool) -> Iterator[str]:
    if ops:
        yield from (op_text(op, run.line(index).get("jepsen", index)) for index, op in enumerate(run.ops))
    about, origin = run.about, run.origin
    topics = {number: one["topic"] for number, one in about["partitions"].items() if one["topic"] != number}
    if topics:
        yield "keys: " + ", ".join(f"{number} is {topic}" for number, topic in topics.items())
    if about["history_lines"] != len(run.ops):
        yield f"lines: {about['history_lines']}"
    if about["nodes"]:
        yield f"nodes: {' '.join(about['nodes'])}"
    if origin["odd_values"]:
        yield from (run.folder / origin["odd_values"]).read_text().splitlines()
    finals = about["final_reads"]
    if finals["processes"]:
        yield f"final reads: {finals['processes']} of {finals['partitions']}"
    yield from (f"{what}: {origin[what]}" for what in ("unread", "blind") if origin[what])
    if given:
        yield f"guarantees: {json.dumps(about['guarantees'])}"
        yield f"assumed: {', '.join(origin['assumed'])}"
        yield f"cleanup: {', '.join(one['cleanup'] for one in about['partitions'].values())}"
    for what in ("left_out", "changed"):
        yield from (f"{what}: {count} x {label}" for label, count in origin[what].items())


@pytest.mark.parametrize("title", CASES)
def test_what_is_made_of_a_history(title: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    given = CASES[title][0]
    options, story = dict[str, list[str]](), ""
    for line in given.splitlines():
        if line.startswith("options "):
            for word in line.split()[1:]:
                key, _, value = word.partition("=")
                options.setdefault(key, []).append(value)
        elif not line.startswith("#") and line != RUN_ONLY:
            story += f"{line}\n"
    run = imported(tmp_path, edn(story), **options)
    now = "".join(f"{line}\n" for line in told(run, ops=RUN_ONLY not in given, given="config" in options))
    case_as_written(FILE, CASES, title, now or "nothing\n", request)
