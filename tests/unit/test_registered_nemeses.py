"""A fault of a registered nemesis in a schedule: budget, runner and judge know that it may lose data."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributions import brings, forget

from floodmark.checkers.judge.acts import is_grave
from floodmark.harness.errors import UsageError
from floodmark.harness.faults import loses
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.views import ActiveFaults
from floodmark.nemesis.random_plans import overspends
from floodmark.nemesis.strikes import nemeses_of

CODE = """
from floodmark.harness.faults import Fault
from floodmark.harness.protocols import Pauses, RegisteredNemesis

ROT = RegisteredNemesis(does="", draw_pattern=print, make=print, needs=(Pauses,), faults=(
    Fault(f="rot", does="forget what was written", loses=True), Fault(f="rot_slowly", does="be slow")))
"""


@pytest.fixture(autouse=True)
def rot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The nemesis rot is installed, for this process."""
    monkeypatch.syspath_prepend(brings(tmp_path, {"nemeses": ["rot = rotten:ROT"]}, CODE, name="rotten"))
    forget()
    yield
    monkeypatch.undo()
    forget("rotten")


def test_a_fault_is_known_to_lose_data_if_its_nemesis_declares_it() -> None:
    assert [loses(f, {}) for f in ("rot", "rot_slowly", "rotting", "kill")] == [True, False, False, False]
    assert ActiveFaults().after("rot", ["n1"]).lasting == ()


def test_a_schedule_is_written_as_it_was_read() -> None:
    written = [{"f": "rot", "nodes": ["n1"], "share": 0.5, "of": ["log", 3]}, {"f": "rot_slowly"}]
    assert json_form.write(json_form.read(written)) == written


@pytest.mark.parametrize(("entry", "message"), [
    ({"f": "rotting"}, 'f: is "rotting"; valid: '),
    ({"f": "rot", "lost": False}, 'has the key "lost", which the history uses itself'),
    ({"f": "rot", "share": float("nan")}, "which is not valid in JSON"),
    ({"f": "rot", "partition": -1}, "should be a whole number"),
])
def test_an_entry_that_no_nemesis_accepts_is_refused(entry: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        json_form.read([entry])
    assert message in str(refused.value)


def test_a_loss_is_within_the_budget_only_on_one_node_of_a_healthy_cluster() -> None:
    healthy = {"at": "state", "healthy": True}
    near = json_form.read([{"f": "rot", "nodes": ["n1"], "moment": healthy},
                           {"f": "rot_slowly", "moment": healthy}])
    hit = json_form.read([{"f": "rot", "nodes": ["n1"]}, {"f": "rot_slowly"}])
    assert overspends(near) == ()
    assert [one.position for one in overspends(hit)] == [0, 1]


def test_a_missing_ability_of_the_cluster_is_named_in_the_error() -> None:
    bare: Any = SimpleNamespace(name="bare", lacks={}, abilities=())
    schedule = json_form.read([{"f": "rot"}])
    with pytest.raises(UsageError, match=r"nemesis 'rot' of rotten 0.3 cannot strike here: .*Pauses"):
        nemeses_of(schedule, bare)
    assert nemeses_of(json_form.read([{"f": "heal"}]), bare) == ()


def test_a_judge_takes_an_unknown_fault_for_a_loss_where_lines_are_missing() -> None:
    """The nemesis need not be installed where the folder is judged."""
    assert is_grave({"f": "of-somebody-else"})
    assert not any(is_grave({"f": f}) for f in ("kill", "send", "wait", "poll", "list_offsets"))
