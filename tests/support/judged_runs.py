"""Saved runs with the judge's verdicts, for tests of gates and reports; and a stand-in for the judge."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import GOLDEN

from floodmark.harness import catalog
from floodmark.harness.verdict import Verdict

VERDICTS = Path(__file__).parents[1] / "golden" / "accounts"
VALID = {
    "format": 1, "valid": True, "findings": [], "unknown": [], "not_made": [], "timings_s": {},
    "counts": {"ops": 20, "ok": 10, "fail": 0, "info": 0, "acked": 8, "torn": 0, "records": {"n1": 8}},
}  # fmt: skip


def judged_names() -> list[str]:
    return sorted(path.stem for path in VERDICTS.glob("*.json"))


def judged(parent: Path, name: str) -> Path:
    """A copy of a saved run with its verdict.json; with a valid verdict if none is saved."""
    folder = Path(shutil.copytree(GOLDEN / name, parent / name))
    saved = VERDICTS / f"{name}.json"
    (folder / "verdict.json").write_text(saved.read_text() if saved.exists() else json.dumps(VALID))
    return folder


def finding(name: str, *examples: Mapping[str, Any], by: str | None = None, count: int = 0) -> dict[str, Any]:
    """As verdict.json has it; by: what permits it."""
    return {"name": name, "class": "permitted" if by else "bug", "permitted_by": by,
            "count": count or len(examples), "examples": list(examples)}


def judge_by(monkeypatch: pytest.MonkeyPatch, verdict_of: Callable[[Path], Verdict]) -> None:
    """Until the test ends `check` and `rejudge` get these verdicts, without Spark and background work."""

    class Judge:
        def judge(self, chosen: Sequence[Path]) -> list[Verdict]:
            return [verdict_of(folder) for folder in chosen]

    monkeypatch.setattr(catalog, "judge", lambda *_: Judge())
    monkeypatch.setattr(catalog, "prepare_next_judge", lambda: False)
