"""Judge and twin agree on every random run, legal or damaged, whatever is wrong with its files, and no bug is
found in a legal one; and a wrong verdict is seen.

All are judged in one call, and their files read in ranges of a few lines.
"""

import os
from pathlib import Path

import here
import pytest
from beside_twin import Asked, files_of, make, wrong
from soak_wide import wide
from twin_compare import as_dict, spoken

from floodmark.checkers.judge.job import SparkJudge
from floodmark.harness.verdict import Finding, Unknown, Verdict

COUNTS = {campaign: int(os.environ.get(f"FLOODMARK_{campaign.upper()}", few))
          for campaign, few in (("histories", 100), ("mistyped", 20), ("mutated", 80))}
PARTITIONS = int(os.environ.get("FLOODMARK_PARTITIONS", "25000"))
SEED = os.environ.get("FLOODMARK_SEED", "1")
RANGE_BYTES = 5_000


@pytest.mark.parametrize("campaign", COUNTS)
def test_judge_and_twin_agree(campaign: str, tmp_path: Path) -> None:
    """Findings by name, class, permitted_by and count, the names under unknown, and valid are the same."""
    runs = [make(campaign, SEED, tmp_path, number) for number in range(COUNTS[campaign])]
    verdicts = here.judge([run.path for run in runs], range_bytes=RANGE_BYTES)
    breaches = [f"{run.path}: {run.story}\n  {breach}" for run, verdict in zip(runs, verdicts, strict=True)
                for breach in wrong(run, verdict)]

    assert breaches == [], "\n".join(breaches)
    if campaign == "histories":
        assert sum(run.legal for run in runs) >= len(runs) // 25
        assert len({finding.name for verdict in verdicts for finding in verdict.findings}) > 25


@pytest.mark.spark
def test_very_many_partitions(tmp_path: Path) -> None:
    """Each costs a little, and the damage in the last one is found (`make soak` uses a million)."""
    (verdict,) = SparkJudge().judge([wide(tmp_path / "wide", partitions=PARTITIONS)])

    assert [(one.name, one.klass, one.count) for one in verdict.findings] == [("lost-write", "bug", 1)]
    assert [one["partition"] for one in verdict.findings[0].examples] == [PARTITIONS - 1]
    assert (verdict.valid, verdict.unknown) == (False, ())


LOST = Finding(name="lost-write", klass="bug", permitted_by=None, count=1)
HEALTHY, ILL = Verdict(valid=True), Verdict(valid=False, findings=(LOST,))
OPEN = Verdict(valid="unknown", unknown=(Unknown(names=("lost-write",), reason="a line is missing"),))
FAILED = Verdict(valid="unknown", unknown=(Unknown(names=("unfit",), reason="the judge failed: x"),))


@pytest.mark.parametrize(("verdict", "twins", "legal", "loosely", "breaches"), [
    (ILL, ILL, False, False, []),
    (ILL, HEALTHY, False, False, ["difference"]),
    (ILL, HEALTHY, False, True, ["false alarm"]),
    (HEALTHY, ILL, False, True, ["false valid", "false valid"]),
    (OPEN, ILL, False, False, ["difference"]),
    (OPEN, ILL, False, True, []),
    (HEALTHY, OPEN, False, True, ["false valid"]),
    (ILL, ILL, True, False, ["false alarm"]),
    (FAILED, FAILED, False, False, ["traceback"]),
    (ILL, None, False, True, ["false alarm"]),
    (OPEN, None, False, True, []),
])
def test_a_wrong_verdict_is_seen(verdict: Verdict, twins: Verdict | None, legal: bool, loosely: bool,
                                 breaches: list[str]) -> None:
    """twins: the twin's verdict; None: it cannot read run.json, which a damage changed in a healthy run."""
    asked = Asked(number=0, path=Path(), story="", legal=legal, loosely=loosely,
                  wanted="the twin failed" if twins is None else spoken(as_dict(twins)),
                  before=frozenset() if twins is None else None)

    assert [one.partition(":")[0] for one in wrong(asked, verdict)] == breaches


def test_a_number_determines_a_folder(tmp_path: Path) -> None:
    """Whoever asks, and in whatever order."""
    here, there = (make("mutated", SEED, tmp_path / place, 3) for place in ("here", "there"))

    assert (here.story, files_of(here.path)) == (there.story, files_of(there.path))
