"""What permits that committed records are missing: a permitted final loss excuses what the replica lacks of
the same epoch behind that record."""

import pytest

from floodmark.checkers.laws.permits import BUDGET, UNCLEAN
from floodmark.checkers.laws.trace.excuses import Case, Excuses, Lost


def case(offset: int, end: int, epoch: int | None) -> Case:
    return Case(offset=offset, end=end, time=0, node="n2", seq=0, written=epoch, how="", seen=None)


LOST = Excuses((), {5: Lost(cause=UNCLEAN, there=frozenset())})  # the record of epoch 1 at 5


def test_what_is_missing_behind_it_is_excused() -> None:
    """5 was lost with permission; so 6 to 8 of its epoch may be missing, whatever final logs show."""
    assert LOST.worst([case(5, 6, 1), case(6, 9, 1)], timed=False) == (case(5, 6, 1), UNCLEAN)


@pytest.mark.parametrize(("cases", "bug"), [
    ([case(3, 5, 1), case(5, 6, 1)], case(3, 5, 1)),  # before it
    ([case(5, 6, 1), case(6, 9, 2)], case(6, 9, 2)),  # of another epoch
    ([case(6, 9, 1)], case(6, 9, 1)),  # on a replica that has 5
])
def test_what_is_missing_elsewhere_is_not(cases: list[Case], bug: Case) -> None:
    assert LOST.worst(cases, timed=False) == (bug, None)


def test_the_permit_that_comes_first_counts() -> None:
    """Of two losses, as of two excuses."""
    permits = {5: Lost(cause=max(UNCLEAN, BUDGET), there=frozenset()),
               6: Lost(cause=min(UNCLEAN, BUDGET), there=frozenset())}
    worst = Excuses((), permits).worst([case(5, 6, 1), case(6, 7, 1), case(7, 9, 1)], timed=False)
    assert worst == (case(6, 7, 1), min(UNCLEAN, BUDGET))


def test_a_record_of_the_leaders_final_log_was_not_lost() -> None:
    """Another of the same offset and another epoch was; so nothing behind it is excused either."""
    there = Excuses((), {5: Lost(cause=UNCLEAN, there=frozenset({1}))})
    assert there.worst([case(5, 6, 1), case(6, 9, 1)], timed=False) == (case(5, 6, 1), None)
