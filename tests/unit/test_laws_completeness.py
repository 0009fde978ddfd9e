"""Replicas that miss committed records (checkers.laws.trace): each breach beside a near miss."""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from unit_rows import GREATEST, LEAST, briefly, found, found_each, tables_of

from floodmark.checkers.laws.log import log
from floodmark.checkers.laws.permits import BUDGET, BUDGET_MAYBE, UNCLEAN, UNCLEAN_MAYBE
from floodmark.checkers.laws.trace.cluster_views import cluster_views
from floodmark.checkers.laws.trace.completeness import completeness
from floodmark.checkers.laws.trace.epoch_spans import epoch_spans
from floodmark.checkers.laws.trace.node_timeline import node_timeline
from floodmark.checkers.laws.unit import opened
from floodmark.checkers.laws.values import values

FAMILIES = log, values, node_timeline, cluster_views, epoch_spans, completeness
ALL = ["n1", "n2", "n3"]
LEADER, CANDIDATE, CUT = "leader-incomplete", "candidate-incomplete", "unsafe-truncation"
Row = dict[str, Any]


class Story:
    """The trace of one partition of three nodes, 10 ns from line to line. LEO and HW are filled in for each
    replica; other fields are given."""

    def __init__(self) -> None:
        self.lines: list[Row] = []
        self.leo = dict.fromkeys(ALL, 0)
        self.hw = dict.fromkeys(ALL, 0)
        self.seqs: dict[str, int] = {}

    def line(self, node: str, event: str, **fields: Any) -> "Story":
        self.seqs[node] = self.seqs.get(node, -1) + 1
        state = {"leo": self.leo.get(node), "hw": self.hw.get(node)}
        usual = {"time": 10 * len(self.lines), "node": node, "seq": self.seqs[node], "event": event, **state}
        self.lines.append({**usual, **fields})
        return self

    def elect(self, leader: str, epoch: int, isr: Sequence[str] = ALL) -> "Story":
        self.line("c", "elect", leader=leader, epoch=epoch, isr=isr, clean=True, partition_epoch=epoch)
        self.line(leader, "become_leader", epoch=epoch, isr=isr, start=self.leo[leader])
        for node in ALL:
            if node != leader:
                self.line(node, "become_follower", epoch=epoch)
        return self

    def append(self, node: str, epoch: int, count: int = 1, role: str = "follower", **fields: Any) -> "Story":
        first, self.leo[node] = self.leo[node], self.leo[node] + count
        batch = {"offset": first, "count": count, "epochs": [[epoch, first]], "role": role, **fields}
        return self.line(node, "append", epoch=epoch, **batch)

    def write(self, epoch: int, by: str = "n1", to: Iterable[str] = ("n2", "n3")) -> "Story":
        """A record on all of these nodes, then committed."""
        self.append(by, epoch, role="leader")
        for node in to:
            self.append(node, epoch)
        return self.commit(by, epoch, self.leo[by])

    def commit(self, leader: str, epoch: int, hw: int) -> "Story":
        self.hw[leader] = hw
        return self.line(leader, "hw", epoch=epoch, role="leader")

    def truncate(self, node: str, to: int, epoch: int = 0, **fields: Any) -> "Story":
        before, self.leo[node] = self.leo[node], to
        return self.line(node, "truncate", cut_from=before, cut_to=to, epoch=epoch, **fields)

    def start(self, node: str, leo: int, **fields: Any) -> "Story":
        self.leo[node] = leo
        return self.line(node, "start", **fields)

    def rows(self, *, fenced: Iterable[str] = (), **traced: Any) -> dict[str, list[Row]]:
        active = [{"node": node, "since": -GREATEST, "until": GREATEST} for node in ALL if node not in fenced]
        return {"trace": self.lines, "traced": [traced], "active_brokers": active}


def judged(story: Story, keys: Sequence[str] = ("how", "offset", "nodes"), **facts: Any) -> list[Any]:
    return briefly(found(FAMILIES, **story.rows(**facts)), *keys)


def judged_each(stories: Iterable[tuple[Story, Row]], *keys: str) -> list[list[Any]]:
    """The same for many stories, each with its facts, all in one unit."""
    runs = [story.rows(**facts) for story, facts in stories]
    return [briefly(findings, *keys) for findings in found_each(FAMILIES, runs)]


def spans(*stories: Story, node: str = "n1") -> list[list[tuple[Any, ...]]]:
    """For each story (epoch, from, to, how it ended) of one replica."""
    with opened(tables_of([story.rows() for story in stories])) as unit:
        node_timeline(unit)
        epoch_spans(unit)
        rows = unit.rows(f"from epoch_spans where node = '{node}' order by lo, gone nulls last").to_pylist()
    found: list[list[tuple[Any, ...]]] = [[] for _ in stories]
    for row in rows:
        end = "cut" if row["cut"] else "kept" if row["gone"] is None else "left"
        found[row["run"]].append((row["epoch"], row["lo"], row["hi"], end))
    return found


# -- the walk ---------------------------------------------------------------------------------------------


STACKS = [
    (Story().append("n1", 0, 2).append("n1", 0), [(0, 0, 3, "kept")]),
    (Story().append("n1", 0, 2).append("n1", 1), [(0, 0, 2, "kept"), (1, 2, 3, "kept")]),
    (
        Story().append("n1", 0, 2).append("n1", 0, offset=5, epochs=[[0, 5]]),
        [(0, 0, 2, "kept"), (0, 5, 6, "kept")],
    ),
    (
        Story().append("n1", 2, 4, epochs=[[0, 0], [1, 1], [1, 1], [2, 3]]),
        [(0, 0, 1, "kept"), (1, 1, 3, "kept"), (2, 3, 4, "kept")],
    ),
    (Story().append("n1", 0, 4).truncate("n1", 1), [(0, 0, 1, "kept"), (0, 1, 4, "cut")]),
    (
        Story().append("n1", 0, 4).truncate("n1", 1, cause="recovery"),
        [(0, 0, 1, "kept"), (0, 1, 4, "left")],
    ),
    (Story().append("n1", 0, 4).truncate("n1", 9), [(0, 0, 4, "cut")]),
    (Story().append("n1", 0, 4).start("n1", 1), [(0, 0, 1, "kept"), (0, 1, 4, "left")]),
    (Story().append("n1", 0, 2).start("n1", 5), [(0, 0, 2, "kept"), (None, 2, 5, "kept")]),
    (
        Story().append("n1", 0, 4).start("n1", 3, epochs=[[0, 0], [-1, 1], [2, 2]]),
        [(0, 0, 4, "left"), (0, 0, 1, "kept"), (None, 1, 2, "kept"), (2, 2, 3, "kept")],
    ),
    (Story().append("n1", 0, 4).line("n1", "start", partition=None), [(0, 0, 4, "left")]),
    (
        # Appended over existing records without a truncation: the file has both.
        Story().append("n1", 0, 4).append("n1", 1, offset=1, epochs=[[1, 1]]),
        [(0, 0, 1, "kept"), (1, 1, 2, "kept"), (0, 1, 4, "kept")],
    ),
    (
        Story().append("n1", 0, 4).append("n1", 1, offset=1, epochs=[[1, 1]]).truncate("n1", 2),
        [(0, 0, 1, "kept"), (1, 1, 2, "kept"), (0, 1, 2, "kept"), (0, 2, 4, "cut")],
    ),
    (
        Story().append("n1", 0, 9, offset=GREATEST - 2, epochs=[[0, GREATEST - 2]]),
        [(0, GREATEST - 2, GREATEST, "kept")],
    ),
    (Story().append("n1", 0, 1, epochs=[[LEAST, LEAST]]), [(LEAST, LEAST, 1, "kept")]),
]


def test_a_log_is_a_stack_of_epochs() -> None:
    assert spans(*(story for story, _ in STACKS)) == [expected for _, expected in STACKS]


def test_without_epochs_a_followers_records_get_the_leaders_epoch_from_its_start() -> None:
    story = Story().append("n2", 0, 1).elect("n1", 3).append("n1", 3, 2, role="leader", epochs=None)
    story.append("n2", 3, 1, epochs=None).append("n2", 4, 1, epochs=None)

    assert spans(story) == [[(3, 0, 2, "kept")]]
    assert spans(story, node="n2") == [[(0, 0, 1, "kept"), (3, 1, 2, "kept"), (None, 2, 3, "kept")]]


def test_a_leaders_records_of_earlier_epochs_are_listed_once() -> None:
    story = Story().elect("n1", 0).write(0).elect("n1", 1).write(1).elect("n1", 2).elect("n2", 3)
    story.commit("n2", 3, 2).elect("n2", 4)
    with opened(tables_of([story.rows()])) as unit:
        node_timeline(unit)
        epoch_spans(unit)
        rows = unit.rows(
            'select node, written, lo, hi, "by" from inherited order by "by", written'
        ).to_pylist()

    assert [tuple(row.values()) for row in rows] == [
        ("n1", 0, 0, 1, 1), ("n1", 1, 1, 2, 2), ("n2", 0, 0, 1, 3), ("n2", 1, 1, 2, 3),
    ]  # fmt: skip


# -- missing records -------------------------------------------------------------------------------------


def two_epochs() -> Story:
    return Story().elect("n1", 0).write(0).elect("n1", 1).write(1)


def test_all_have_what_was_committed() -> None:
    assert not judged(two_epochs().elect("n2", 2).write(2, "n2", ("n1", "n3")))


def lags() -> Story:
    return Story().elect("n1", 0).write(0, to=["n2"]).write(0, to=["n2"])


LAGS_BEHIND = (CANDIDATE, "short", 0, ["n3"])


BEHIND = [
    (lags(), {}, [LAGS_BEHIND]),
    (lags(), {"fenced": ["n3"]}, []),
    (lags(), {"replicas": ["n1", "n2"]}, []),
    (Story().elect("n1", 0, ["n1", "n2"]).write(0, to=["n2"]), {}, []),
    (lags().elect("n3", 1), {}, [LAGS_BEHIND, (LEADER, "short", 0, ["n3"])]),
    # No two lines are in order: a lag is known only at the end of the trace.
    (lags().elect("n3", 1), {"clock_error": 1_000}, [LAGS_BEHIND]),
    (lags().elect("n3", 1), {"clock_error": 1 << 62}, [LAGS_BEHIND]),
]


def test_a_log_that_ends_below_what_was_committed() -> None:
    findings = judged_each([(story, facts) for story, facts, _ in BEHIND], "how", "offset", "nodes")

    assert findings == [expected for *_, expected in BEHIND]


def test_a_leader_that_learns_late_of_its_epoch_need_not_have_later_commits() -> None:
    story = Story().elect("n1", 0).write(0).elect("n2", 2, ["n1", "n2"]).write(2, "n2", ["n1"])

    assert not judged(story.line("n3", "become_leader", epoch=1, isr=["n3"], start=1))


def test_a_leader_whose_hw_fell_has_committed_the_lower_records_too() -> None:
    story = Story().elect("n1", 0, ["n1", "n2"]).append("n1", 0, 3, role="leader").append("n3", 0)
    story.hw["n1"] = 2
    story.append("n1", 0, role="leader").commit("n1", 0, 3)
    story.hw["n1"] = 0
    story.append("n1", 0, role="leader").commit("n1", 0, 2)

    assert (LEADER, 1, 3) in judged(story.elect("n3", 1, ["n3"]), ("offset", "seen"))


def test_the_first_missing_record_of_each_epoch_is_named() -> None:
    story = Story().elect("n1", 0).write(0).write(0, to=["n2"]).elect("n1", 1).write(1, to=["n2"])

    findings = judged(story, ("offset", "epoch", "nodes"))
    assert findings == [(CANDIDATE, 1, 0, ["n3"]), (CANDIDATE, 2, 1, ["n3"])]


def mixed() -> Story:
    """n3 has a record of epoch 0 where one of epoch 1 is committed."""
    return Story().elect("n1", 0).append("n3", 0).elect("n1", 1)


def test_another_record_at_a_committed_offset() -> None:
    keys = "how", "offset", "upto", "seen", "node"
    assert judged(mixed().write(1, to=["n2"]), keys) == [(CANDIDATE, "other", 0, 1, 0, "n1")]
    assert not judged(mixed().truncate("n3", 0, 1).write(1))
    assert not judged(Story().elect("n1", 1, ["n1", "n2"]).append("n3", 0).write(1, to=["n2"]))


def leaves_and_grows(story: Story) -> Story:
    """n3 leaves the ISR; then both logs grow."""
    story.line("c", "isr", leader="n1", epoch=1, isr=["n1", "n2"], partition_epoch=2)
    return story.append("n3", 0).write(1, to=["n2"]).line("n1", "hw", epoch=1, role="leader")


GROWING = [
    # n3 had the other record while it was a candidate, whatever came later.
    (leaves_and_grows(mixed().write(1, to=["n2"])), [(CANDIDATE, "other", 0, 1)]),
    (leaves_and_grows(mixed().write(1, to=["n2"]).append("n3", 0, 2)), [(CANDIDATE, "other", 0, 1)]),
    # The record of epoch 1 was committed only after n3 had left, or it had another there only then.
    (leaves_and_grows(mixed().append("n1", 1, role="leader").append("n2", 1)), []),
    (leaves_and_grows(Story().elect("n1", 1).append("n1", 1, role="leader").commit("n1", 1, 1)), []),
]


def test_a_log_grows_on_after_the_replica_has_left_the_isr() -> None:
    findings = judged_each([(story, {}) for story, _ in GROWING], "how", "offset", "upto")

    assert [[one for one in some if one[1] == "other"] for some in findings] == [
        expected for _, expected in GROWING]


CUTS = [
    ({"to": 0}, {}, [(CUT, 0, 1), (CANDIDATE, 0, None)]),
    ({"to": 0}, {"fenced": ["n2"]}, [(CUT, 0, 1)]),
    ({"to": 0, "cause": "recovery"}, {"fenced": ["n2"]}, []),
    ({"to": 0}, {"fenced": ["n2"], "claims_from": 1}, []),
    ({"to": 0}, {"fenced": ["n2"], "replicas": ["n1", "n3"]}, []),
    ({"to": 1}, {}, []),
    ({"to": GREATEST}, {"fenced": ["n2"]}, [(CUT, 0, 1)]),  # the log is emptied
    ({"to": LEAST}, {"fenced": ["n2"]}, [(CUT, 0, 1)]),
]


def cut_by(truncation: Row) -> Story:
    story = Story().elect("n1", 0).write(0).append("n2", 0)
    story.lines.append({**story.truncate("n2", **truncation).lines.pop(), "leo": max(0, truncation["to"])})
    return story


def test_a_truncation_removes_committed_records() -> None:
    findings = judged_each([(cut_by(truncation), facts) for truncation, facts, _ in CUTS], "offset", "upto")

    assert list(map(sorted, findings)) == [sorted(expected) for *_, expected in CUTS]


def test_a_truncation_before_the_commit_is_no_finding() -> None:
    assert not judged(Story().elect("n1", 0).append("n1", 0, role="leader").append("n2", 0).truncate("n2", 0))


# -- what permits it --------------------------------------------------------------------------------------


def excuse(permit: int, time: int, *, epoch: int = 0, elected: int = 9, struck: int | None = None) -> Row:
    return {"permit": permit, "epoch": epoch, "elected": elected, "time": time, "struck": struck}


CUT_AT = 70  # ns, the line of the truncation in `cut_story`
BORN_AT = 40  # when its record was written first


def cut_story() -> Story:
    return Story().elect("n1", 0).write(0, to=["n2"]).truncate("n2", 0, epoch=4)


EXCUSES = [
    ([], None),
    ([excuse(UNCLEAN, CUT_AT - 30)], UNCLEAN),
    ([excuse(BUDGET, CUT_AT - 30)], BUDGET),
    ([excuse(BUDGET, CUT_AT - 30), excuse(UNCLEAN_MAYBE, 0)], UNCLEAN_MAYBE),
    ([excuse(UNCLEAN, CUT_AT + 90)], None),  # a later one permits nothing
    ([excuse(UNCLEAN, CUT_AT + 90, elected=4)], UNCLEAN),  # the line is in the elected epoch
    ([excuse(UNCLEAN, CUT_AT - 30, epoch=-1)], None),  # written after it
    ([{**excuse(UNCLEAN, CUT_AT - 30), "epoch": None}], UNCLEAN),
    ([excuse(BUDGET, CUT_AT - 30, struck=BORN_AT + 1)], BUDGET),
    ([excuse(BUDGET, CUT_AT - 30, struck=BORN_AT)], BUDGET_MAYBE),  # which of the two was first?
    ([excuse(BUDGET, CUT_AT - 30, struck=BORN_AT - 1)], None),  # it was written after the copies were struck
    ([excuse(BUDGET, 0, struck=BORN_AT - 1), excuse(BUDGET, CUT_AT - 1, struck=BORN_AT + 1)], BUDGET),
    ([excuse(BUDGET, CUT_AT - 30, struck=BORN_AT - 1), excuse(BUDGET, CUT_AT + 90)], None),
]


def test_an_election_permits_losses_of_records_written_before_it() -> None:
    facts = {"fenced": ["n2"], "replicas": ["n1", "n2"]}
    runs = [(cut_story(), {**facts, "excuses": excuses}) for excuses, _ in EXCUSES]

    assert judged_each(runs, "permit") == [[(CUT, expected)] for _, expected in EXCUSES]


def test_of_many_records_the_first_that_was_written_after_the_strike_is_named() -> None:
    story = Story().elect("n1", 0).write(0, to=["n2"]).write(0, to=["n2"]).write(0, to=["n2"])
    births = [line["time"] for line in story.lines if line["event"] == "append" and line["node"] == "n1"]
    facts = {"fenced": ["n2"], "replicas": ["n1", "n2"]}
    runs = [
        (story, {**facts, "excuses": [excuse(BUDGET, 0, struck=time)]})
        for time in (births[0] - 1, births[1] - 1, births[2] - 1, births[2] + 1)
    ]
    story.truncate("n2", 0, epoch=4)

    assert judged_each(runs, "offset", "upto", "permit") == [
        [(CUT, 0, 3, None)], [(CUT, 1, 3, None)], [(CUT, 2, 3, None)], [(CUT, 0, 3, BUDGET)]
    ]  # fmt: skip


def test_an_election_within_the_clock_error_permits_it_perhaps() -> None:
    for permit, maybe in ((UNCLEAN, UNCLEAN_MAYBE), (BUDGET, BUDGET_MAYBE)):
        rows = cut_story().rows(fenced=["n2"], clock_error=4, replicas=["n1", "n2"])
        cut = next(line for line in rows["trace"] if line["event"] == "truncate")
        rows["traced"][0]["excuses"] = [excuse(permit, cut["time"] - 4)]

        assert briefly(found(FAMILIES, **rows), "permit") == [(CUT, maybe)]


def test_a_candidate_is_permitted_before_the_election_too() -> None:
    excuses = [excuse(UNCLEAN, 10_000)]

    assert judged(lags(), ("permit",), excuses=excuses) == [(CANDIDATE, UNCLEAN)]


def lost_at(offset: int, epoch_there: int | None) -> dict[str, list[Row]]:
    """An ack whose record is permitted to be missing from the leader's log; another one is at its offset."""
    send = {"partition": 0, "value": 7, "offset": offset}
    there = [{"offset": 0, "epoch": epoch_there, "value": 8}] if epoch_there is not None else []
    return {
        "sends": [{**send, "type": "invoke", "index": 0}, {**send, "type": "ok", "index": 1}],
        "partitions": [{"budget_index": 5}],
        "replicas": [{"node": "n1", "leads": True, "leo": len(there)}],
        "entries": there,
    }


LOST = [
    (lost_at(0, None), BUDGET),
    (lost_at(0, 5), BUDGET),
    (lost_at(0, 0), None),  # the record itself is there: it was not lost
    (lost_at(1, None), None),  # another record
]


def test_a_truncation_of_a_record_whose_loss_is_permitted_is_permitted() -> None:
    rows = cut_story().rows(fenced=["n2"], replicas=["n1", "n2"])
    findings = found_each(FAMILIES, [rows | lost for lost, _ in LOST])

    assert [briefly([one for one in each if one["name"] == CUT], "permit") for each in findings] == [
        [(CUT, expected)] for _, expected in LOST]


# -- many and odd ------------------------------------------------------------------------------------------

MANY = 400


def behind() -> tuple[Story, list[Row]]:
    story = Story()
    for epoch in range(MANY):
        story.elect("n1", epoch).write(epoch, to=["n2"])
    return story, []


def led_by_an_empty_log() -> tuple[Story, list[Row]]:
    story = Story()
    for epoch in range(MANY // 2):
        story.elect("n1", epoch).write(epoch, to=["n2"])
    for epoch in range(MANY // 2, MANY):
        story.elect("n3", epoch, ["n3"])
    return story, [
        excuse(UNCLEAN, 10 * at, epoch=line["epoch"] - 1, elected=line["epoch"])
        for at, line in enumerate(story.lines)
        if line["event"] == "elect"
    ]


def overwritten() -> tuple[Story, list[Row]]:
    """Every leader empties its log, and commits."""
    story = Story()
    for epoch in range(MANY):
        story.elect("n1", epoch)
        for node in ALL:
            story.truncate(node, 0, epoch).append(
                node, epoch, 2, role="leader" if node == "n1" else "follower"
            )
        story.commit("n1", epoch, 0).commit("n1", epoch, 2)
    return story, []


GREAT: list[tuple[Callable[[], tuple[Story, list[Row]]], dict[tuple[str, int | None], int]]] = [
    (behind, {(CANDIDATE, None): MANY}),
    (led_by_an_empty_log, {(LEADER, UNCLEAN): MANY // 2, (CANDIDATE, UNCLEAN): MANY // 2}),
    (overwritten, {(CANDIDATE, None): 3 * MANY - 3, (CUT, None): 3 * MANY - 3}),
]


def test_the_work_for_many_elections_grows_with_their_lines() -> None:
    """A statement that pairs elections with epochs would take minutes."""
    runs = [story.rows(excuses=excuses) for story, excuses in (tale() for tale, _ in GREAT)]
    for findings, (_, expected) in zip(found_each(FAMILIES, runs), GREAT, strict=True):
        brief = briefly(findings, "permit")
        assert {one: brief.count(one) for one in set(brief)} == expected


BEHIND_A_LOSS = [
    (lost_at(0, None), 2),  # 1 is of its epoch: it may be missing, whatever final logs show; 2 is of the next
    (lost_at(1, None), 0),
    (lost_at(0, 0), 0),  # the record is there: it was not lost
]


def test_what_is_missing_of_an_epoch_behind_a_record_whose_loss_is_permitted_is_permitted() -> None:
    story = Story().elect("n1", 0).write(0).write(0).elect("n2", 1).write(1, "n2", ["n1", "n3"])
    rows = story.truncate("n2", 0, epoch=4).rows(fenced=["n2"])
    findings = found_each(FAMILIES, [rows | lost for lost, _ in BEHIND_A_LOSS])

    assert [[one for one in briefly(each, "offset", "permit") if one[0] == CUT] for each in findings] == [
        [(CUT, offset, None)] for _, offset in BEHIND_A_LOSS]


def test_any_number_is_accepted() -> None:
    stories = [odd_story(Random(seed)).rows(clock_error=seed % 2, excuses=[excuse(UNCLEAN, 0)])
               for seed in range(6)]
    found_each(FAMILIES, stories)


def odd_story(random: Random) -> Story:
    """Lines with the right fields, and any numbers in them."""
    numbers = [*range(6)] * 4 + [LEAST, LEAST + 1, -1, GREATEST - 1, GREATEST]
    story = Story()
    for _ in range(60):
        one = {
            name: random.choice(numbers) for name in ("epoch", "hw", "start", "cut_from", "cut_to", "time")
        }
        one["time"] = one["time"] if random.random() < 0.1 else 10 * len(story.lines)
        one |= {name: abs(max(random.choice(numbers), -GREATEST)) for name in ("leo", "offset", "count")}
        one |= {"role": "leader", "isr": ALL, "clean": True}
        epochs = [[random.choice(numbers), random.choice(numbers)] for _ in range(random.randrange(3))]
        event = random.choice(["append", "append", "truncate", "hw", "become_leader", "start", "elect"])
        node = "c" if event == "elect" else random.choice(ALL)
        one |= {"leo": None, "hw": None} if event == "elect" else {"epochs": epochs or None}
        story.line(node, event, **one | {"count": max(1, one["count"])})
    return story
