"""A fault of a registered nemesis in a schedule: budget, runner and judge know that it may lose data."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from floodmark.checkers.judge.unread import is_grave
from floodmark.harness.errors import UsageError
from floodmark.harness.faults import loses, registered_fault
from floodmark.harness.registered import registered
from floodmark.harness.schedule import json_form
from floodmark.nemesis.active_faults import ActiveFaults
from floodmark.nemesis.budget import overspends
from floodmark.nemesis.registered_nemeses import nemeses_of

CODE = """
from floodmark.harness.faults import Fault
from floodmark.harness.protocols import Pauses, RegisteredNemesis

ROT = RegisteredNemesis(does="", draw_pattern=print, make=print, needs=(Pauses,), faults=(
    Fault(f="rot", does="forget what was written", loses=True), Fault(f="rot_slowly", does="be slow")))
"""


@pytest.fixture(autouse=True)
def rot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The nemesis rot is installed, for this process."""
    info = tmp_path / "rotten-0.3.dist-info"
    info.mkdir()
    (tmp_path / "rotten.py").write_text(CODE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rotten\nVersion: 0.3\n")
    (info / "entry_points.txt").write_text("[floodmark.nemeses]\nrot = rotten:ROT\n")
    monkeypatch.syspath_prepend(tmp_path)
    registered.cache_clear()
    registered_fault.cache_clear()
    yield
    monkeypatch.undo()
    registered.cache_clear()
    registered_fault.cache_clear()


def test_the_history_says_that_it_may_have_lost_data() -> None:
    assert [loses(f, {}) for f in ("rot", "rot_slowly", "rotting", "kill")] == [True, False, False, False]


def test_a_schedule_says_it_as_it_was_read() -> None:
    written = [{"f": "rot", "nodes": ["n1"], "share": 0.5, "of": ["log", 3]}, {"f": "rot_slowly"}]
    assert json_form.write(json_form.read(written)) == written


@pytest.mark.parametrize(("entry", "told"), [
    ({"f": "rotting"}, 'f: is "rotting"; valid: '),
    ({"f": "rot", "lost": False}, 'has the key "lost", which the history uses itself'),
    ({"f": "rot", "share": float("nan")}, "which is not valid in JSON"),
    ({"f": "rot", "partition": -1}, "should be a whole number"),
])
def test_what_none_of_them_takes_is_refused(entry: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        json_form.read([entry])
    assert told in str(refused.value)


def test_a_loss_is_within_the_budget_only_on_one_node_of_a_healthy_cluster() -> None:
    healthy = {"at": "state", "healthy": True}
    near = json_form.read([{"f": "rot", "nodes": ["n1"], "moment": healthy},
                           {"f": "rot_slowly", "moment": healthy}])
    hit = json_form.read([{"f": "rot", "nodes": ["n1"]}, {"f": "rot_slowly"}])
    assert overspends(near) == ()
    assert [one.position for one in overspends(hit)] == [0, 1]


def test_a_cluster_that_lacks_what_it_needs_is_told_by_the_ability() -> None:
    bare: Any = SimpleNamespace(name="bare", lacks={}, abilities=())
    schedule = json_form.read([{"f": "rot"}])
    with pytest.raises(UsageError, match=r"nemesis 'rot' of rotten 0.3 cannot strike here: .*Pauses"):
        nemeses_of(schedule, bare)
    assert nemeses_of(json_form.read([{"f": "heal"}]), bare) == ()


def test_it_is_over_when_it_has_struck() -> None:
    assert ActiveFaults().after("rot", ["n1"]).lasting == ()


def test_a_judge_that_knows_it_not_takes_it_for_a_loss_where_lines_are_missing() -> None:
    """Whoever judges a folder need not have what was installed where it was recorded."""
    assert is_grave({"f": "of-somebody-else"})
    assert not any(is_grave({"f": f}) for f in ("kill", "send", "wait", "poll", "list_offsets"))
