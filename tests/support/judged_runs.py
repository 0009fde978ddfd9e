"""Saved runs with the judge's verdicts, for tests of reports and statistics, without a judge."""

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
    """A copy of a saved run with its verdict.json; with a valid verdict if none is saved."""
    folder = Path(shutil.copytree(GOLDEN / name, parent / name))
    saved = VERDICTS / f"{name}.json"
    (folder / "verdict.json").write_text(saved.read_text() if saved.exists() else json.dumps(VALID))
    return folder
