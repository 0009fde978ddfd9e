"""Random faults on the simulated cluster: correct rules are never accused, and known-bad ones are caught."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import trace_laws
from how_many import cases

from floodmark.harness import catalog
from floodmark.harness.commands.run import planned
from floodmark.harness.runner import carry_out
from floodmark.harness.spec import RULES, RunSpec
from floodmark.harness.verdict import BUG, Verdict

pytestmark = pytest.mark.spark

DURATION_S, RATE = 6.0, 40.0  # of virtual time


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """The rules of a run's brokers."""

    rules: str = RULES[-1]
    bugs: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


# As Kafka was from 2.1 on, below 3.7, and below 0.10.2.
OLDER = ("two-phase", "hw-below-min-isr", "hw-isr-only", "follower-reads")
CORRECT = (*(Broker(),) * cases(40, few=3), *(Broker(switches=(one,)) for one in OLDER[:cases(4, few=0)]),
           Broker(switches=OLDER))  # fmt: skip
BAD = [Broker(bugs=(bug,)) for bug in ("ack_on_append", "credit_on_send", "read_to_leo") for _ in range(2)]
Outcomes = Mapping[Broker, Sequence[tuple[int, Path, Verdict]]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """For each broker the seed, the folder and the verdict of each run; all are judged in one call."""
    parent = tmp_path_factory.mktemp("random")
    brokers = [*BAD, *CORRECT]
    folders = [played(seed, broker, parent / str(seed)) for seed, broker in enumerate(brokers)]
    verdicts = catalog.judge().judge(folders)
    found: dict[Broker, list[tuple[int, Path, Verdict]]] = {}
    for seed, (broker, folder, verdict) in enumerate(zip(brokers, folders, verdicts, strict=True)):
        found.setdefault(broker, []).append((seed, folder, verdict))
    return found


def played(seed: int, broker: Broker, folder: Path) -> Path:
    config = (f"floodmark.switches={','.join(broker.switches)}",) if broker.switches else ()
    plan = planned(
        RunSpec(cluster=catalog.SIMULATED, duration=DURATION_S, rate=RATE, nemesis="all", interval=1.0,
                   settings="drawn", seed=seed, rules=broker.rules, bugs=broker.bugs, config=config,
                   out=folder),
        ask_broker=False)
    assert asyncio.run(carry_out(plan, lambda _: None)).ended == "done"
    return folder


@pytest.mark.parametrize("broker", dict.fromkeys(CORRECT), ids=lambda one: "+".join(one.switches) or "plain")
def test_correct_rules_lose_nothing(broker: Broker, outcomes: Outcomes) -> None:
    """Every schedule is within the budget: there is no finding, not even a permitted one, and the trace adds
    up to the logs."""
    for seed, folder, verdict in outcomes[broker]:
        assert (verdict.valid, verdict.findings, verdict.unknown) == (True, (), ()), f"seed {seed}"
        assert trace_laws.breaches(folder) == [], f"seed {seed}"


@pytest.mark.parametrize("broker", dict.fromkeys(BAD), ids=lambda one: one.bugs[0])
def test_known_bad_rules_are_caught(broker: Broker, outcomes: Outcomes) -> None:
    """By the same faults."""
    assert any(one.klass == BUG for _, _, verdict in outcomes[broker] for one in verdict.findings)
