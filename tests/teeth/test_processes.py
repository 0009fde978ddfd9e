"""Five known bugs on real brokers: each is caught by the check that should, the correct broker by none."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from process_teeth import TEETH, Tooth

from floodmark.harness import catalog
from floodmark.harness.commands.run import RunOptions, planned, record
from floodmark.harness.verdict import BUG, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.spark]


def carry_out(tooth: Tooth, bugs: tuple[str, ...], folder: Path) -> Path:
    options = RunOptions(
        nodes=tooth.nodes,
        bugs=bugs,
        links="proxied",
        concurrency=0,
        partitions=1,
        duration=0.1,
        seed=1,
        replication_factor=tooth.nodes,
        out=folder,
        config=tuple(f"{key}={value}" for key, value in tooth.config.items()),
    )
    result = record(planned(options, tooth.schedule))
    assert result.ended == "done"
    assert result.about["missed"] == []
    return folder


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, bool], Verdict]:
    """(tooth, whether the bug was in) -> what the judge says; all runs judged in one call."""
    parent = tmp_path_factory.mktemp("teeth")
    wanted = [(tooth, buggy) for tooth in TEETH for buggy in (True, False)]
    folders = [
        carry_out(
            tooth, tooth.bugs if buggy else (), parent / f"{tooth.name}-{'bug' if buggy else 'correct'}"
        )
        for tooth, buggy in wanted
    ]
    judged = catalog.judge().judge(folders)
    return {(tooth.name, buggy): verdict for (tooth, buggy), verdict in zip(wanted, judged, strict=True)}


@pytest.mark.parametrize("tooth", TEETH, ids=lambda tooth: tooth.name)
def test_the_bug_is_caught(tooth: Tooth, verdicts: Mapping[tuple[str, bool], Verdict]) -> None:
    """The damage it does is found, by name, and held against the broker."""
    verdict = verdicts[tooth.name, True]

    assert tooth.finding in {found.name for found in verdict.findings if found.klass == BUG}
    assert verdict.valid is False


@pytest.mark.parametrize("tooth", TEETH, ids=lambda tooth: tooth.name)
def test_the_correct_broker_is_not(tooth: Tooth, verdicts: Mapping[tuple[str, bool], Verdict]) -> None:
    """The very same schedule does a broker without the bug no harm."""
    verdict = verdicts[tooth.name, False]

    assert {found.name for found in verdict.findings if found.klass == BUG} == set()
    assert verdict.valid is True
