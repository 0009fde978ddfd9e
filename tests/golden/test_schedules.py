"""The language of schedules: what each line of schedules.txt means, or why it is refused.

`pytest --rewrite` writes the answers; then read the diff.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from golden_text import answered_as_written

from floodmark.harness.errors import Refused, UsageError
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.moments import Entry, Time
from floodmark.nemesis.steps import read_step

NODES, PARTITIONS = ("n1", "n2", "n3"), (0, 1)
ARMS = "report n1 at L.acked times 0"  # for steps that wait for it


def meaning(line: str) -> str:
    """Whatever is accepted is read, and written as it was."""
    try:
        if not line.startswith(("{", "[")):
            entries, armed = read_step(line), read_step(ARMS)
            read = json_form.read([*armed, *entries], nodes=NODES, partitions=PARTITIONS)
            assert json_form.write(read) == [*armed, *entries]
            return f"= {json.dumps(entries)}"
        given = json.loads(line)
        entries = given if isinstance(given, list) or not given else [given]
        read = json_form.read(entries, nodes=NODES, partitions=PARTITIONS)
        assert json_form.write(read) == entries
        return "="
    except (Refused, UsageError) as error:
        return "! " + str(error).replace("\n", " | ")


def test_every_line_means_what_is_written_below_it(request: pytest.FixtureRequest) -> None:
    answered_as_written("schedules.txt", meaning, request)


def test_what_is_no_step_has_no_entries() -> None:
    assert read_step("") == read_step("   # nothing but words, 5 of them") == []


def test_without_a_cluster_any_node_name_is_accepted() -> None:
    """A file can be read before it is known how many nodes there will be."""
    assert json_form.read([{"f": "kill", "nodes": ["n77"]}]) == (Entry(f="kill", nodes=("n77",)),)


KILL: Mapping[str, Any] = {"f": "kill", "nodes": ["n1"], "moment": {"at": "time", "time": 5}}


@pytest.mark.parametrize(("name", "text"), [
    ("s.json", json.dumps([KILL])), ("run.json", json.dumps({"format": 1, "schedule": [KILL]})),
    ("s.toml", '[[schedule]]\nf = "kill"\nnodes = ["n1"]\nmoment = {at = "time", time = 5}\n')])
def test_files_of_each_format_are_read(tmp_path: Path, name: str, text: str) -> None:
    """A JSON array, a whole run.json, TOML's tables: the same schedule."""
    (tmp_path / name).write_text(text)
    assert json_form.load(tmp_path / name) == (Entry(f="kill", nodes=("n1",), moment=Time(time=5)),)


@pytest.mark.parametrize(("name", "text"), [("a.json", "[{]"), ("a.toml", "= 1"), ("missing.json", None)])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=name):
        json_form.load(tmp_path / name)
