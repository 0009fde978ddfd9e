"""Jepsen histories in a short form, and the run folders that the import makes of them.

An op is `[PROCESS] TYPE F VALUE`, then other fields as they stand; `sent VALUE@OFFSET`, `polled READS` and
`assigned KEYS` are an invocation and its ok completion. What begins with `{` is EDN.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twin_folder import Row, fits_field_table

from floodmark.harness import history
from floodmark.harness.commands.import_jepsen import import_history
from floodmark.harness.importers.edn import forms
from floodmark.harness.op import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The folder made of a text."""

    folder: Path
    ops: list[Op]
    about: dict[str, Any]

    @property
    def origin(self) -> dict[str, Any]:
        found: dict[str, Any] = self.about["imported"]
        return found

    def line(self, index: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "history.jsonl").read_text().splitlines()[index])
        return found


def imported(tmp_path: Path, text: str, **options: Any) -> Imported:
    """Imports the text. Checks that each line fits the field table of format 1, whatever the text was."""
    (tmp_path / "history.edn").write_text(text)
    out = tmp_path / "run"
    assert import_history(tmp_path / "history.edn", out=out, **options) == 0
    lines = (out / "history.jsonl").read_bytes().splitlines()
    assert [line for line in lines if not fits_field_table(Row(json.loads(line)))] == []
    ops = list(history.read(out / "history.jsonl"))
    assert [op.index for op in ops] == list(range(len(ops)))
    assert [op.time for op in ops] == sorted(op.time for op in ops)
    return Imported(folder=out, ops=ops, about=json.loads((out / "run.json").read_text()))


def edn(story: str) -> str:
    """The history of these lines, in EDN, an op a line."""
    lines = [op for line in story.strip().splitlines() for op in ([line] if line[0] == "{" else ops_of(line))]
    return "".join(f"{line}\n" if line[0] == "{" else f"{{:index {at}, :time {at * 1000}, {line}}}\n"
                   for at, line in enumerate(lines))


def ops_of(line: str) -> Iterator[str]:
    process, word, value = re.fullmatch(r"(\d+ |:\w+ |)(\w+) (.*)", line).groups()  # type: ignore[union-attr]
    given = f":process {process.strip() or 0}"
    value, comma, more = value.partition(", :")
    match word:
        case "sent":
            sent, _, offset = value.partition("@")
            yield f"{given}, :type :invoke, :f :send, :value [[:send 0 {sent}]]"
            yield f"{given}, :type :ok, :f :send, :value [[:send 0 [{offset} {sent}]]]"
        case "polled":
            yield f"{given}, :type :invoke, :f :poll, :value [[:poll]]"
            yield f"{given}, :type :ok, :f :poll, :value [[:poll {value}]]{comma}{more}"
        case "assigned" | "subscribed":
            f = {"assigned": "assign", "subscribed": "subscribe"}[word]
            yield from (f"{given}, :type :{kind}, :f :{f}, :value {value}{comma}{more}"
                        for kind in ("invoke", "ok"))
        case _:
            f, _, value = value.partition(" ")
            yield f"{given}, :type :{word}, :f :{f}" + (f", :value {value}{comma}{more}" if value else "")


def in_json(text: str) -> str:
    """The ops as JSON lines: keywords are strings, and so are a map's keys."""

    def plain(form: Any) -> Any:
        if isinstance(form, dict):
            return {str(plain(key)): plain(value) for key, value in form.items()}
        if isinstance(form, tuple):
            return [plain(item) for item in form]
        return getattr(form, "name", form)

    return "".join(json.dumps(plain(form)) + "\n" for _, form in forms(text.encode()))
