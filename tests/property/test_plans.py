"""Laws of random plans: the seed determines them, every fault is mended, the budget is kept."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from floodmark.harness.catalog import NEMESES
from floodmark.harness.faults import FAULTS, MORE_NEMESES
from floodmark.harness.schedule.json_form import read, write
from floodmark.harness.schedule.moments import HEALTHY, Entry, Failpoint, FirstOf, Schedule, Time
from floodmark.harness.schedule.patterns import DrawPattern, FaultPattern, PatternScope, Step
from floodmark.harness.schedule.views import CONTROLLER, ActiveFaults
from floodmark.nemesis.fault_patterns import MAKERS, laggard, severed
from floodmark.nemesis.random_plans import overspends, plan

names = st.lists(st.sampled_from(sorted(MAKERS)), min_size=1, unique=True)
sizes = st.integers(1, 5)
seeds = st.integers(0, 2**32)


def made(chosen: Sequence[str], seed: int, count: int, **how: Any) -> Schedule:
    of_plan: dict[str, Any] = {"duration_s": 30.0, "interval_s": 5.0, "registered": {}}
    of_plan |= {key: how.pop(key) for key in [*how] if key in of_plan}
    scope = PatternScope(random=Random(seed), nodes=tuple(f"n{number}" for number in range(1, count + 1)),
                         partitions=(0, 1), **how)
    return plan(chosen, scope, **of_plan)


def ledgers(schedule: Schedule) -> list[ActiveFaults]:
    """The faults in force after each entry."""
    found, ledger = [], ActiveFaults()
    for entry in schedule:
        if entry.f in FAULTS:
            ledger = ledger.after(entry.f, entry.nodes or ("cut",))
        found.append(ledger)
    return found


def quiet(ledger: ActiveFaults) -> bool:
    """No fault is in force, and no armed failpoint could still strike."""
    return not ledger.lasting and not any(one.live for one in ledger.armed)


@settings(max_examples=60)
@given(chosen=names, seed=seeds, count=sizes, overspend=st.booleans())
def test_the_seed_determines_the_plan(chosen: list[str], seed: int, count: int, overspend: bool) -> None:
    """The order of names does not matter, nor a name given twice, and a plan can be written and read."""
    schedule = made(chosen, seed, count, overspend=overspend)

    assert schedule == made([*chosen[::-1], chosen[0]], seed, count, overspend=overspend)
    assert schedule == read(write(schedule), nodes=[f"n{number}" for number in range(1, count + 1)])


@settings(max_examples=100)
@given(chosen=names, seed=seeds, count=sizes, overspend=st.booleans(),
       interval_s=st.sampled_from([0.5, 2.0, 5.0]))
def test_laws_of_every_plan(chosen: list[str], seed: int, count: int, overspend: bool,
                            interval_s: float) -> None:
    """Times ascend within the duration, and nothing is in force at the end. With a budget, which counts
    from two nodes, no entry overspends: nothing is in force at a power cut, nor before `healthy`, for that
    would wait for a mending that comes later; all are down only by the kill of all at once, never by
    pauses. A broker is stopped in an orderly way only where its links are whole: else it does not hand its
    leadership over."""
    schedule = made(chosen, seed, count, overspend=overspend, interval_s=interval_s)
    times = [entry.moment.time for entry in schedule if isinstance(entry.moment, Time)]
    states = ledgers(schedule)

    assert times == sorted(times)
    assert all(time <= 29 * 10**9 for time in times)
    assert not schedule or quiet(states[-1])
    if overspend or count == 1:
        return
    assert overspends(schedule) == ()
    for entry, before in zip(schedule, [ActiveFaults(), *states], strict=False):
        if entry.moment == HEALTHY or entry.f == "stop":
            assert quiet(before)
    for ledger in states:
        down, paused = {*ledger.down} - {CONTROLLER}, {*ledger.paused} - {CONTROLLER}
        assert len(down | paused) < count or not paused
        assert not down & paused


# One seed may draw none of a kind; several together draw all, and these are always the same.
SEEDS = range(8)
ALL = [*NEMESES]


@pytest.mark.parametrize("count", range(2, 6))
def test_where_all_is_fsynced_any_may_lose_power_together(count: int) -> None:
    """Several copies, or all, at any moment; still within the budget, and each is started again."""
    schedules = [made(["power"], seed, count, flush_every=True, duration_s=300.0) for seed in SEEDS]
    struck = {len(entry.nodes) for schedule in schedules for entry in schedule if entry.f == "power_cut"}

    assert {1, count} <= struck
    for schedule in schedules:
        assert not any(overspends(schedule, min_insync_replicas=least, flush_every=True) for least in (1, 2))
        assert quiet(ledgers(schedule)[-1])


@pytest.mark.parametrize("flush_every", [False, True])
def test_a_node_dies_right_behind_a_truncation(flush_every: bool) -> None:
    """Once F.truncated is met there, after it was cut off; all lose power where that takes nothing."""
    schedules = [made(ALL, seed, 3, duration_s=300.0, flush_every=flush_every) for seed in SEEDS]
    struck = [entry for schedule in schedules for entry in schedule
              if entry.f in ("kill", "power_cut") and isinstance(entry.moment, FirstOf)
              and isinstance(entry.moment.of[0], Failpoint) and entry.moment.of[0].name == "F.truncated"
              and {"name": "F.truncated", "action": "report", "times": 0} in [
                  other.args.get("point") for other in schedule if other.nodes
                  and other.nodes[0] == entry.moment.of[0].node]]

    assert {entry.f for entry in struck} == {"kill", *(["power_cut"] if flush_every else [])}
    assert {len(entry.nodes) for entry in struck if entry.f == "power_cut"} <= {3}
    assert not any(overspends(schedule, flush_every=flush_every) for schedule in schedules)


def test_a_node_is_severed_from_the_controller_and_some_peers_or_all() -> None:
    grudges = [entry.args["grudge"] for seed in SEEDS for entry in made(["cut"], seed, 3, duration_s=300.0)
               if entry.args.get("kind") == "severed"]
    unheard = {len({*grudge[CONTROLLER]}) and max(map(len, grudge.values())) for grudge in grudges
               if CONTROLLER in grudge}

    assert {2, 3} <= unheard


@given(seed=seeds, elects=st.booleans(), draw=st.sampled_from([severed, laggard]))
def test_a_node_that_is_cut_off_leads_first_where_elections_may_be_requested(
        seed: int, elects: bool, draw: DrawPattern) -> None:
    nodes = ("n1", "n2", "n3")
    steps = draw(PatternScope(random=Random(seed), nodes=nodes, free=nodes, partitions=(0, 1),
                              overspend=False, elects=elects)).steps
    assert tuple(step.f for step in steps)[:2 if elects else 1] == (("elect", "cut") if elects else ("cut",))


def test_preferred_leaders_are_struck_more_often() -> None:
    nodes = tuple(f"n{number}" for number in range(1, 6))
    for leaders, least, most in (((), 100, 300), (("n1",), 650, 850), (("n6",), 100, 300)):
        scope = PatternScope(random=Random(1), nodes=nodes, free=nodes, partitions=(0,), overspend=False,
                             leaders=frozenset(leaders))
        struck = Counter(scope.victim() for _ in range(1000))
        assert {*struck} == {*nodes}
        assert least < struck["n1"] < most


@given(seed=seeds)
def test_no_kind_of_pattern_is_drawn_again_before_all_were(seed: int) -> None:
    drawn: Counter[str] = Counter()

    def drawing(name: str) -> DrawPattern:
        def draw(_scope: PatternScope) -> FaultPattern:
            drawn[name] += 1
            return FaultPattern(steps=(Step(at_s=0.0, f=name),))
        return draw

    kinds = [f"x-{number}" for number in range(5)]
    schedule = made(kinds, seed, 3, duration_s=300.0, registered={name: drawing(name) for name in kinds})

    assert len(schedule) > len(kinds)
    assert max(drawn.values()) - min(drawn[name] for name in kinds) <= 1


@pytest.mark.parametrize(("chosen", "duration_s", "least"), [
    (NEMESES, 60.0, 1.0), (NEMESES, 30.0, 0.95), (NEMESES, 20.0, 0.85),
    (("crash", "pause", "cut"), 20.0, 1.0), (("crash", "restart", "power"), 20.0, 0.95)])
def test_each_nemesis_that_was_asked_for_strikes(
        chosen: Sequence[str], duration_s: float, least: float) -> None:
    """With the usual interval, of 100 seeds. In 20 s there is not always time for all nine."""
    faults = {"crash": "kill", "restart": "stop", "power": "power_cut", "moments": "arm"}
    struck = Counter(entry.f for seed in range(100) for entry in {
        one.f: one for one in made(chosen, seed, 3, duration_s=duration_s)
        if one.nodes != (CONTROLLER,) or one.f == "arm"}.values())

    counts = {name: struck[faults.get(name, name)] for name in chosen if name != "controller"}
    assert min(counts.values()) >= 100 * least, counts


def test_plans_end_with_a_blackout_or_a_leader_that_does_not_hear_of_its_election() -> None:
    """Nothing strikes after it. It is not drawn where a nemesis that it needs was not asked for."""
    def ends(chosen: Sequence[str]) -> set[str]:
        return {ending(made(chosen, seed, 3, duration_s=40.0, interval_s=20.0)) for seed in range(40)}

    assert ends(ALL) >= {"blackout", "unheard"}
    assert "unheard" in ends(["cut", "expire", "controller"])
    assert ends(["cut", "expire"]) == {"other"}


def ending(schedule: Schedule) -> str:
    """What the last strike was."""
    cuts = [at for at, entry in enumerate(schedule) if entry.f == "cut"]
    if cuts and schedule[cuts[-1]].args["kind"] == "unheard":
        last = schedule[cuts[-1]:]
        unheard, = last[0].args["grudge"]
        if [entry.f for entry in last] == ["cut", "expire", "heal"] and unheard not in last[1].nodes:
            return "unheard"
    harmed = [entry for entry in schedule if entry.f not in ("start", "heal", "resume", "release")]
    all_down = [entry for entry in harmed[-2:] if entry.f in ("kill", "power_cut") and len(entry.nodes) == 3]
    return "blackout" if all_down else "other"


@pytest.mark.parametrize("seed", SEEDS)
def test_after_eight_seconds_of_harm_there_is_a_calm_time(seed: int) -> None:
    """Whatever struck in them may last for eight more."""
    schedule, began_ns, longest_ns = made(["crash", "pause"], seed, 5, duration_s=120.0, interval_s=0.5), 0, 0
    for entry, ledger in zip(schedule, ledgers(schedule), strict=True):
        if isinstance(entry.moment, Time):
            began_ns = began_ns or entry.moment.time
            longest_ns = max(longest_ns, entry.moment.time - began_ns)
            began_ns = 0 if quiet(ledger) else began_ns

    assert 4e9 < longest_ns < 16e9


def test_each_nemesis_does_what_it_says() -> None:
    """Thirty seconds of each, one seed: the faults that belong to it, and no other. (Ten minutes for those
    with more kinds of faults than fit in thirty seconds.)"""
    many = ("controller", "moments", "power", "packet")
    faults = {"crash": {"kill", "start"}, "restart": {"stop", "start"}, "pause": {"pause", "resume"},
              "cut": {"cut", "heal"}, "expire": {"expire"},
              "power": {"power_cut", "start", "cut", "heal"},  # it hears nobody for a while
              "elect": {"elect"}, "controller": {"kill", "stop", "start", "pause", "resume", "cut", "heal"},
              "moments": {"arm", "release", "expire", "elect", "kill", "start", "pause", "resume", "cut",
                          "heal"},
              "packet": {"packet", "heal", "reset"}, "clock": {"clock", "reset_clock"},
              "disk": {"bad_disk", "mend_disk", "start"}, "memory": {"memory", "free_memory", "start"}}

    assert tuple(MAKERS) == NEMESES + MORE_NEMESES
    assert {name: {entry.f for entry in made(
        [name], 7, 3, duration_s=600.0 if name in many else 30.0)} - {"wait"}
        for name in MAKERS} == faults


def test_overspending_goes_beyond() -> None:
    """Power cuts of several nodes at once and unclean elections, each reported with its position."""
    for name in ("power", "elect"):
        schedule = made([name], 7, 3, overspend=True)
        struck = [at for at, entry in enumerate(schedule)
                  if entry.f == "power_cut" or entry.args.get("unclean")]

        assert struck
        assert {one.position for one in overspends(schedule)} >= set(struck)


def test_with_one_copy_acked_a_power_cut_may_lose_an_acked_record() -> None:
    """The budget depends on the settings; its other rules: tests/unit/test_nemeses.py."""
    one = (Entry(f="power_cut", nodes=("n1",), moment=HEALTHY),)

    assert overspends(one) == ()
    assert [spent.position for spent in overspends(one, min_insync_replicas=1)] == [0]
