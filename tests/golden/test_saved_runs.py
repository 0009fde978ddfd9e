"""The saved runs of histories/golden are judged as they were when somebody read their verdicts and kept
them."""

import json
from pathlib import Path
from typing import Any

import pytest
import twin

GOLDEN = Path(__file__).parents[2] / "histories" / "golden"
FOLDERS = sorted(path.parent for path in GOLDEN.glob("*/expected.json"))


def expected(folder: Path) -> dict[str, Any]:
    saved = json.loads((folder / "expected.json").read_text())
    return {key: saved[key] for key in ("valid", "findings", "unknown")}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_twin_says_what_was_expected(folder: Path) -> None:
    """The plain judge of the tests agrees with every saved verdict."""
    verdict = twin.judge(folder)
    assert verdict.pop("not_made") == []
    assert expected(folder) == verdict


@pytest.mark.spark
def test_the_judge_says_what_was_expected() -> None:
    """One call of the product's judge agrees with every saved verdict: names, classes, counts, unknown
    names."""
    from floodmark.checkers.judge.job import SparkJudge

    verdicts = SparkJudge().judge(FOLDERS)
    differences = {
        folder.name: {"expected": wanted, "judged": judged}
        for folder, verdict in zip(FOLDERS, verdicts, strict=True)
        if (wanted := expected(folder)) != (judged := as_expected(verdict))
    }

    assert len(FOLDERS) >= 30
    assert differences == {}


def as_expected(verdict: Any) -> dict[str, Any]:
    """A verdict of the product's in the shape of expected.json."""
    return {
        "valid": verdict.valid,
        "findings": [
            {"name": one.name, "class": one.klass, "permitted_by": one.permitted_by, "count": one.count}
            for one in sorted(verdict.findings, key=lambda one: (one.name, one.klass, one.permitted_by or ""))
        ],
        "unknown": sorted({name for unknown in verdict.unknown for name in unknown.names}),
    }
