"""The saved runs of histories/golden are judged as they were when somebody read their verdicts and kept
them: by the twin, and by one call of the product's judge."""

import json
from pathlib import Path
from typing import Any

import pytest
import twin
from twin_compare import as_dict

GOLDEN = Path(__file__).parents[2] / "histories" / "golden"
FOLDERS = sorted(path.parent for path in GOLDEN.glob("*/expected.json"))


def plain(verdict: dict[str, Any]) -> tuple[Any, ...]:
    findings = sorted(json.dumps(one, sort_keys=True) for one in verdict["findings"])
    return verdict["valid"], findings, sorted(verdict["unknown"]), verdict.get("not_made", [])


def expected(folder: Path) -> tuple[Any, ...]:
    return plain(json.loads((folder / "expected.json").read_text()))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_twin_says_what_was_expected(folder: Path) -> None:
    assert plain(twin.judge(folder)) == expected(folder)


@pytest.mark.spark
def test_the_judge_says_what_was_expected() -> None:
    """Names, classes, counts, unknown names."""
    from floodmark.checkers.judge.job import SparkJudge

    verdicts = zip(FOLDERS, SparkJudge().judge(FOLDERS), strict=True)
    differences = {folder.name: (wanted, judged) for folder, verdict in verdicts
                   if (wanted := expected(folder)) != (judged := plain(as_dict(verdict)))}
    assert len(FOLDERS) >= 30
    assert differences == {}
