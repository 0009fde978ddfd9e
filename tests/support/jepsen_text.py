"""Jepsen histories as text, and the run folders that the import makes of them."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twin_folder import fits_field_table

from floodmark.harness import history
from floodmark.harness.commands.import_jepsen import import_history
from floodmark.harness.importers.edn import forms
from floodmark.harness.op import Op

SEND = (":type :invoke, :f :send, :value [[:send 0 1]]", ":type :ok, :f :send, :value [[:send 0 [5 1]]]")
POLL = ":type :invoke, :f :poll, :value [[:poll]]"
READ = (POLL, ":type :ok, :f :poll, :value [[:poll {0 [[5 1]]}]]")


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


def imported(tmp_path: Path, text: str, *, name: str = "history.edn", **options: Any) -> Imported:
    """Imports the text. Checks that each line fits the field table of format 1, whatever the text was."""
    (tmp_path / name).write_text(text)
    out = tmp_path / "run"
    assert import_history(tmp_path / name, out=out, **options) == 0
    lines = (out / "history.jsonl").read_bytes().splitlines()
    assert [line for line in lines if not fits_field_table(json.loads(line))] == []
    ops = list(history.read(out / "history.jsonl"))
    assert [op.index for op in ops] == list(range(len(ops)))
    assert [op.time for op in ops] == sorted(op.time for op in ops)
    return Imported(folder=out, ops=ops, about=json.loads((out / "run.json").read_text()))


def numbered(*ops: str) -> str:
    """Ops with index and time, and with process 0 where they name none."""
    return "\n".join(
        f"{{:index {index}, :time {index * 1000}{'' if ':process' in op else ', :process 0'}, {op}}}"
        for index, op in enumerate(ops))


def nemesis(*ops: str) -> str:
    """A send, then the nemesis's ops."""
    return numbered(*SEND, *(f":process :nemesis, :type :info, {op}" for op in ops))


def in_json(text: str) -> str:
    """The ops as JSON lines: keywords are strings, and so are a map's keys."""

    def plain(form: Any) -> Any:
        if isinstance(form, dict):
            return {str(plain(key)): plain(value) for key, value in form.items()}
        if isinstance(form, tuple):
            return [plain(item) for item in form]
        return getattr(form, "name", form)

    return "".join(json.dumps(plain(form)) + "\n" for _, form in forms(text.encode()))


def places(op: Op) -> list[tuple[int, int | None, int]]:
    """An op's sends and reads, as (partition, offset, value)."""
    return [(item.partition, item.offset, item.value) for item in (*(op.sends or ()), *(op.reads or ()))]
