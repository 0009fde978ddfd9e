"""Judge and twin agree on every random run, legal or damaged, and no bug is found in a legal one.

All are judged in one call, and their files read in ranges of a few lines.
"""

import os
from pathlib import Path

import here
import random_runs
import twin
from twin_compare import as_dict, spoken

RUNS = int(os.environ.get("FLOODMARK_SOAK", "100"))
SEED = os.environ.get("FLOODMARK_SEED", "1")
RANGE_BYTES = 5_000


def test_judge_and_twin_agree(tmp_path: Path) -> None:
    """Findings by name, class, permitted_by and count, the names under unknown, and valid are the same."""
    runs = [random_runs.run_of(SEED, number, tmp_path) for number in range(RUNS)]
    verdicts = here.judge([run.path for run in runs], range_bytes=RANGE_BYTES)
    pairs = [(run, spoken(twin.judge(run.path)), spoken(as_dict(verdict)))
             for run, verdict in zip(runs, verdicts, strict=True)]
    different = [f"{run.path}: {run.story}\n  twin  {wanted}\n  judge {judged}"
                 for run, wanted, judged in pairs if wanted != judged]
    slandered = [f"{run.path}: {run.story}: {judged}" for run, _, judged in pairs
                 if run.legal and any(klass == "bug" for _, klass, *_ in judged[1])]

    assert different == [], "\n".join(different)
    assert slandered == []
    assert sum(run.legal for run in runs) >= RUNS // 25
    assert len({name for _, _, judged in pairs for name, *_ in judged[1]}) > 25
