"""Saved runs with their verdicts as the judge gave them, for what is told of them, without a judge."""

import json
import shutil
from pathlib import Path

from command_line import GOLDEN

VERDICTS = Path(__file__).parents[1] / "golden" / "accounts"
VALID = {
    "format": 1, "valid": True, "findings": [], "unknown": [], "not_made": [], "timings_s": {},
    "counts": {"ops": 20, "ok": 10, "fail": 0, "info": 0, "acked": 8, "torn": 0, "records": {"n1": 8}},
}  # fmt: skip


def judged_names() -> list[str]:
    return sorted(path.stem for path in VERDICTS.glob("*.json"))


def judged(parent: Path, name: str) -> Path:
    """A copy of a saved run with its verdict.json; of one that nobody keeps a verdict of, a valid one."""
    folder = Path(shutil.copytree(GOLDEN / name, parent / name))
    told = VERDICTS / f"{name}.json"
    (folder / "verdict.json").write_text(told.read_text() if told.exists() else json.dumps(VALID))
    return folder
