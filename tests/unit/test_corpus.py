"""Every case of tests/corpus: the judge finds what the case expects, and the twin finds the same."""

from pathlib import Path

import corpus
import here
import pytest
import twin
from corpus import Case
from twin_compare import as_dict, spoken

from floodmark.harness.verdict import Verdict

CASES = corpus.cases()
Judged = dict[Case, tuple[Path, Verdict]]
ALONE = ("no op at all", "a trace of the controller alone", "no partitions and a trace")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Judged:
    root = tmp_path_factory.mktemp("corpus")
    folders = [case.write(root / str(number)) for number, case in enumerate(CASES)]
    verdicts = here.judge(folders, range_bytes=corpus.RANGE_BYTES)
    return dict(zip(CASES, zip(folders, verdicts, strict=True), strict=True))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.ident)
def test_case(case: Case, judged: Judged) -> None:
    folder, verdict = judged[case]

    assert corpus.said(verdict) == case.expected
    assert verdict.valid == corpus.valid(case)
    assert corpus.unsaid(case, verdict) == []
    if case.for_the_twin:
        assert spoken(twin.judge(folder)) == spoken(as_dict(verdict))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name in ALONE], ids=lambda case: case.name)
def test_no_law_needs_the_rows_of_another_run(case: Case, tmp_path: Path) -> None:
    """Runs without rows of some kind, each alone in its unit."""
    (verdict,) = here.judge([case.write(tmp_path / "run")])

    assert (corpus.said(verdict), verdict.failure) == (case.expected, None)


def test_no_two_cases_have_one_name() -> None:
    assert len({case.ident for case in CASES}) == len(CASES)
