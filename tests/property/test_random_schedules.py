"""Random schedules of clients, faults and a bad network: correct rules lose nothing, bad ones are caught."""

import pytest
from how_many import cases
from random_driver import RandomDriver, random_cluster

SCHEDULES = cases(300, few=60)
STEPS = 600


def first_damage(
    rules: str, bugs: tuple[str, ...], seed: int, switches: tuple[str, ...] = ()
) -> list[str]:
    return RandomDriver(random_cluster(seed, rules, bugs, switches), seed).run(STEPS)


def test_the_correct_rules_lose_nothing_and_never_diverge() -> None:
    """Every schedule is within the budget, so every acked record stays, and after mending all logs are
    equal."""
    acked = 0
    for seed in range(SCHEDULES):
        cluster = random_cluster(seed)
        assert RandomDriver(cluster, seed).run(STEPS) == [], f"seed {seed}"
        acked += sum(sent.acked for sent in cluster.sends)
    assert acked > 10 * SCHEDULES  # otherwise the schedules are too wild to prove anything


@pytest.mark.parametrize("switches", [("two-phase",), ("hw-below-min-isr",), ("hw-isr-only",),
                                      ("two-phase", "hw-below-min-isr", "hw-isr-only", "follower-reads")],
                         ids="+".join)  # fmt: skip
def test_other_correct_brokers_lose_nothing_either(switches: tuple[str, ...]) -> None:
    """As Kafka was from 2.1 on, below 3.7, or below 0.10.2: each switch alone and all of them together."""
    for seed in range(cases(40, few=12)):
        assert first_damage("kip-320", (), seed, switches) == [], f"seed {seed}"


@pytest.mark.parametrize(
    "bug",
    ["ack_on_append", "ack_min_insync", "trunc_hw", "leader_trunc", "credit_on_send", "credit_diverging",
     "shrink_optimistic", "read_to_leo", "parked_survives_demotion", "forget_epoch"],
)  # fmt: skip
def test_the_same_driver_catches(bug: str) -> None:
    """One of the same seeds makes the bug do harm."""
    assert any(first_damage("kip-320", (bug,), seed) for seed in range(40))


@pytest.mark.parametrize("rules", ["high-watermark", "kip-101"])
def test_the_same_driver_catches_the_old_generations(rules: str) -> None:
    """Truncating to the high watermark, or to an end offset without its epoch, does harm without any bug."""
    assert any(first_damage(rules, (), seed) for seed in range(60))


def test_a_seed_is_a_schedule() -> None:
    """The same seed does the same things and comes to the same logs."""

    def outcome(seed: int) -> tuple[dict[str, int], str]:
        cluster = random_cluster(seed)
        driver = RandomDriver(cluster, seed)
        driver.run(STEPS)
        return driver.counts, cluster.numbers()

    assert outcome(7) == outcome(7)
    assert outcome(7) != outcome(8)
