"""The same statements run on every folder, whatever is wrong with it: damage takes no other path."""

from pathlib import Path
from random import Random
from typing import Any

import damages_clients
import damages_isolation
import damages_logs
import damages_losses
import damages_orders
import damages_trace
import damages_txn
import damages_unread
import here
import pyarrow as pa
import pytest
import real_like
from damages import DAMAGES
from folders import Tale
from planting import NOT_SETTLED
from traces import traced

from floodmark.checkers.judge import whole_runs
from floodmark.checkers.laws.families import FAMILIES
from floodmark.checkers.laws.unit import Unit, asked
from histories import healthy as healthy_run

GOLDEN = Path(__file__).parents[2] / "histories/golden"
ADDED_BY = (  # imported for what they add
    damages_clients, damages_isolation, damages_logs, damages_losses, damages_orders, damages_txn,
    damages_unread)  # fmt: skip
TRIES = 12  # folders, of which one lends itself to any damage
Ran = tuple[tuple[str, ...], frozenset[str]]


def healthy(tale: Tale) -> None:
    tale.acked(1, 2, 3, process=1).acked(4, 5, process=2).poll(3, (0, 1), (1, 2)).ends(3, 5)


def damaged(tale: Tale) -> None:
    """Something of everything: lost, overwritten, doubled, read too early, out of order, skipped."""
    tale.poll(3, (7, 12)).acked(1, 2, 3, 4, 5, 6).send(2, 7, at=[4]).send(2, 8, at=[2]).send(
        1, 9, kind="fail"
    )
    tale.logged(9, 2).logged(11, epoch=2, nodes=("n2",)).logged(12, epoch=1, nodes=("n2",)).drop("n1", 1)
    tale.poll(4, (0, 1), (5, 6), (3, 4)).poll(4, (1, 3)).ends(4, 2).ends(4, 1).send(5, 2)
    tale.op(6, "txn", asked={"sends": [{"partition": 0, "value": 12}]}, sends=[{"partition": 0, "value": 12}],
            reads=[{"partition": 0, "offset": 7, "value": 12}])  # fmt: skip
    tale.row("n3")["hw"] = 99


def ran_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """The statements of every family, and the names of what was found."""
    units: list[Unit] = []

    def noting(unit: Unit, families: Any) -> pa.Table:
        units.append(unit)
        return asked(unit, families)

    monkeypatch.setattr(whole_runs, "asked", noting)
    (verdict,) = here.judge([folder], FAMILIES)
    assert not verdict.failure
    (unit,) = units
    return tuple(unit.statements), frozenset(one.name for one in verdict.findings)


@pytest.fixture(scope="module", name="usual")
def statements_of_a_healthy_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    tale = Tale()
    healthy(tale)
    with pytest.MonkeyPatch.context() as monkeypatch:
        statements, found = ran_on(tale.write(tmp_path_factory.mktemp("healthy") / "run"), monkeypatch)
    assert not found
    return statements


def test_a_damaged_run(usual: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tale = Tale()
    damaged(tale)

    statements, found = ran_on(tale.write(tmp_path / "run"), monkeypatch)

    assert statements == usual
    assert len(found) >= 12


def test_a_run_of_which_nothing_is_there(
    usual: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ran_on(Tale(final=False).write(tmp_path / "run"), monkeypatch)[0] == usual


@pytest.mark.parametrize(
    "name",
    [
        "traced-and-in-order",
        "two-leaders-of-one-epoch",
        "elected-without-a-committed-record",
        "a-member-cuts-a-committed-record",
        "acked-ahead-of-the-hw",
        "two-transactions-read-each-other",
        "a-gap-in-the-trace",
    ],
)
def test_a_trace_or_transactions(name: str, usual: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    assert ran_on(GOLDEN / name, monkeypatch)[0] == usual


@pytest.mark.parametrize("name", sorted(DAMAGES | damages_trace.DAMAGES))
def test_any_damage(
    name: str, usual: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(TRIES):
        random = Random(f"{name} {seed}")
        if name in damages_trace.DAMAGES:
            expect = damages_trace.DAMAGES[name](folder := traced(random, steps=60), random)
        else:
            expect = DAMAGES[name](folder := healthy_run(random, settled=name not in NOT_SETTLED), random)
        if expect is not None:
            statements, found = ran_on(folder.write(tmp_path / str(seed)), monkeypatch)
            assert statements == usual
            assert found >= expect.must.keys()
            return
    pytest.fail(f"none of {TRIES} folders lends itself to it")


@pytest.mark.parametrize("damage", real_like.DAMAGES)
def test_damage_by_the_hundred(
    damage: str, usual: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements, found = ran_on(real_like.write(tmp_path / "run", ops=1000, damage=damage), monkeypatch)
    assert statements == usual
    assert real_like.DAMAGES[damage] in found
