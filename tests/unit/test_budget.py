"""What exceeds the fault budget: losses of power and disk, elections, failpoints armed beside them."""

import pytest
from golden_text import answered_as_written

from floodmark.harness.schedule.json_form import read
from floodmark.nemesis.random_plans import overspends
from floodmark.nemesis.steps import read_step


def overspent(steps: str) -> str:
    """Which of the steps (between ` / `) exceed the budget, and why. `fsynced: ` before them: with
    flush.messages=1."""
    line = steps.removeprefix("fsynced: ")
    schedule = read([entry for step in line.split(" / ") for entry in read_step(step)])
    found = overspends(schedule, flush_every=line != steps)
    return "\n".join(f"! {one.position}: {one.why}" for one in found) or "= within it"


def test_one_loss_at_a_time_the_cluster_healthy_in_between(request: pytest.FixtureRequest) -> None:
    answered_as_written("budget.txt", overspent, request)
