"""Runs the checks of other distributions on every unit, after all laws of floodmark's own.

A check is a SELECT, whose rows are findings with the check's name, or a function like those in FAMILIES,
whose findings have that name. Each process looks for checks in its own environment, workers too: on a cluster
the distribution must be installed on the workers.

A check that does not load, raises, or returns rows that are no findings fails the judge for the runs in
question: they are unknown, and the reason names the check and its distribution. A check is never skipped.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from floodmark.checkers.laws.finding_names import LAWS
from floodmark.checkers.laws.permits import PERMITTED_BY
from floodmark.checkers.laws.unit import Family, Unit
from floodmark.harness import registered as entry_points
from floodmark.harness.registered import CHECK, NAME, Registered


class CheckFailed(Exception):
    """A registered check is invalid, or it raised."""


def registered(unit: Unit) -> None:
    """Find the findings of every registered check."""
    known = set(LAWS)
    for check, law in loaded():
        with blamed_on(check):
            if isinstance(law, str):
                unit.find(check.name, law.strip().rstrip(";"))
            else:
                law(unit)
            refuse_odd_rows(unit, check.name, known)
        known.add(check.name)


@cache
def loaded() -> Sequence[tuple[Registered, str | Family]]:
    """All registered checks with their laws, loaded once in a process."""
    seen: dict[str, Registered] = {}
    for check in entry_points.registered(CHECK):
        if not NAME.fullmatch(check.name):
            raise CheckFailed(f"{check}: a name is made of letters, digits and . _ -")
        if check.name in LAWS:
            raise CheckFailed(f"{check}: floodmark has a finding of that name")
        if check.name in seen:
            raise CheckFailed(f"{check}: {seen[check.name].distribution} brings one of that name too")
        seen[check.name] = check
    return tuple((check, law_of(check)) for check in seen.values())


def law_of(check: Registered) -> str | Family:
    with blamed_on(check):
        law: object = check.entry.load()
        if not isinstance(law, str) and not callable(law):
            raise TypeError(f"{check.entry.value} is no SELECT and no function but {type(law).__name__}")
    return law


@contextmanager
def blamed_on(check: Registered) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        message = (str(error).strip().splitlines() or [""])[0]
        raise CheckFailed(f"the {check} failed: {type(error).__name__}: {message}") from error


def refuse_odd_rows(unit: Unit, name: str, known: set[str]) -> None:
    """Refuse rows with other names, without a run, or with an unknown permit number. known: the names of the
    checks that ran before."""
    listed = ", ".join(f"'{one}'" for one in sorted(known))
    permits = ", ".join(map(str, PERMITTED_BY))
    odd = unit.rows(f"""
        select name, run, permit from found where name not in ({listed})
            and (name <> '{name}' or run is null or coalesce(permit not in ({permits}), false))
        limit 1""").to_pylist()
    for row in odd:
        if row["name"] != name:
            raise ValueError(f"it found {row['name']!r}, which is not its name")
        if row["run"] is None:
            raise ValueError("a row of it is of no run: every row needs the column run")
        raise ValueError(f"permit is {row['permit']}; the numbers are those of checkers/laws/permits.py")
