"""The twin's permissions: which losses the configuration permits, and which findings follow from them.

Rules kept here: the cause is the first that applies of acks, unclean election, fault budget; a cause that is
guessed because there is no trace is unsure, and the name of its finding also goes under unknown.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from twin_facts import ENDING, KNOWN, graves, is_grave, lacking, lacks_lines
from twin_folder import Row, World, is_int

ORDER = ACKS, UNCLEAN, BUDGET, RETRIES, SUBSCRIBE, ISOLATION, INTERNAL = (
    "acks", "unclean.leader.election.enable", "fault budget", "retries", "subscribe", "isolation",
    "internal topics")
# Whether something is so: 1 if it is, 0 if it is not, between them if nobody knows. The least of several says
# whether all are, the highest whether one is.
PERHAPS = 0.5


class Cause(NamedTuple):
    """What permits a finding; sure is false if only a trace could have shown it."""

    by: str
    sure: bool = True


DOUBT = Cause("nobody knows")  # not what permits a finding: it is none, and its name is unknown
Found = tuple[int | None, Cause | None]  # its partition, and what permits it


def by_name(*checks: Callable[..., Iterator[Any]]) -> dict[str, Callable[..., Iterator[Any]]]:
    """The checks by the names of their findings."""
    return {check.__name__.replace("_", "-"): check for check in checks}


def first(causes: Iterable[Cause | None]) -> Cause | None:
    """The first of several causes in the order of naming, sure before unsure."""
    return min(filter(None, causes), key=lambda cause: (ORDER.index(cause.by), not cause.sure), default=None)


def earlier(world: World, one: int, other: int) -> float:
    """Whether the first stamp is before the other, if the clocks decide."""
    return float(one < other) if abs(one - other) > world.clock_error else PERHAPS


def losing_cause(world: World, send: Row) -> Cause | None:
    """Why the record of a send that is lost may be missing, apart from acks."""
    return (unclean(world, send) or fault_budget(world, send)) if send.home.named else None


def unclean(world: World, send: Row) -> Cause | None:
    """An unclean election of the partition after the send was invoked, one that was allowed; or the setting
    is on and there is no trace. If clocks, or whether it was allowed, leave it open, the cause is unsure."""
    shown, requests = world.shows_cleanness, asks(world, send.partition)
    elections = unclean_elections(world, send.partition)
    later = max((min(was_allowed(world, event), earlier(world, send.invoked_time, event.time))
                 for event in elections), default=0)
    if later == 1 or (not shown and any(line.position > send.since for line in requests)):
        return Cause(UNCLEAN)
    timeless = (world.disordered and not shown and requests) or (
        world.time_falls and any(was_allowed(world, event) for event in elections))
    setting = world.given.unclean_leader_election is True and not shown
    return Cause(UNCLEAN, sure=False) if setting or timeless or later or untold_election(world) else None


def asks(world: World, partition: int | None) -> list[Row]:
    """The nemesis's lines that requested one. None: of every partition."""
    return [act for act in world.acts if act.f == "elect" and act.fault.unclean is True
            and (act.fault.partitions is None or partition in act.fault.partitions)]


def rulings(world: World, *names: str) -> list[Row]:
    """The controller's lines; the controller is any node that is not in run.json."""
    return [event for event in world.trace or [] if event.event in names
            and event.node not in world.run.nodes]


def unclean_elections(world: World, partition: int) -> list[Row]:
    return [event for event in rulings(world, "elect")
            if event.clean is False and event.partition == partition]


def was_allowed(world: World, event: Row) -> float:
    """Whether this unclean election was allowed: by the setting, or because the nemesis had requested one
    before. A request may exist that no readable line shows."""
    setting = world.given.unclean_leader_election
    before = max((PERHAPS if world.time_falls else earlier(world, act.began, event.time)
                  for act in asks(world, event.partition)), default=0)
    incomplete = lacks_lines(world) or world.run.history_lines is None  # the last line may be missing
    due = not isinstance(world.run.schedule, list) or "elect" in lacking(world, is_grave) | world.hidden
    perhaps = setting not in (True, False) or (incomplete and due)
    return 1 if setting is True else max(before, PERHAPS if perhaps else 0)


def untold_election(world: World) -> bool:
    return "elect" in world.hidden and not world.shows_cleanness


def fault_budget(world: World, send: Row) -> Cause | None:
    """Copies were struck, then a leader was elected from struck ones only; by counting without a trace."""
    home, struck = send.home, strikes(world, send.home, lambda line: line.position > send.since)
    nodes = {node for _, node in struck}
    if world.shows_elections:
        chosen = max((surely for _, surely in chosen_from_struck(world, home, struck)), default=0)
        if chosen:
            return Cause(BUDGET, sure=chosen == 1)
    elif nodes:
        return Cause(BUDGET, sure=len(nodes) >= min_insync(world, home))
    timeless = world.disordered or (world.time_falls and world.shows_elections)
    return perhaps_struck(world, home, timeless=timeless)


def min_insync(world: World, home: Row) -> int:
    """Where no guarantee says it, the highest that its nodes are configured with."""
    told = [number for node in home.replicas for number in world.configured(node, "min.insync.replicas")]
    return int(world.given.get("min_insync_replicas", max([1, *filter(is_int, told)])))


def perhaps_struck(world: World, home: Row, *, timeless: bool) -> Cause | None:
    """A fault that lost data may be on missing or unreadable lines; or the time of one is unknown."""
    known = timeless and bool(strikes(world, home, lambda line: True))
    return Cause(BUDGET, sure=False) if known or unseen_strike(world, home) else None


def struck_by(world: World, home: Row) -> list[tuple[str, Row]]:
    """(node, line) of each fault with "lost" on a replica's node."""
    return [(node, act) for act in world.acts if act.lost
            for node in act.nodes if node in home.replicas]


def strikes(world: World, home: Row, after: Callable[[Row], bool]) -> list[tuple[int, str]]:
    """(time, node) of each that came after, and may have cost a record that was sent before."""
    return [(act.began, node) for node, act in struck_by(world, home)
            if after(act) and can_cost(world, act, node, after)]


def can_cost(world: World, line: Row, node: str, after: Callable[[Row], bool]) -> bool:
    """Whether this fault, which lost data of the node, may have cost a record that had to be flushed: not if
    it is a power cut, unless the node's process had ended since the record was sent, and was credited with
    what it had written and not flushed."""
    if world.given.flush != "every" or line.f != "power_cut":
        return True
    ended = any(after(end) and (end.position < line.position or world.disordered)
                for end in ends(world, node))
    return not world.flushes and (ended or world.died is None or node in world.died)


def ends(world: World, node: str) -> list[Row]:
    """The lines by which the node's process ended, or may have, without a flush: also a start of a node that
    nothing had ended."""
    found, up = [], True
    for act in world.acts:
        if node in act.nodes:
            if act.f in ENDING or act.f not in KNOWN or (act.f == "start" and up):
                found.append(act)
            if act.f in ("start", "kill", "stop", "power_cut", "disk"):
                up = act.f == "start"
    return found


def unseen_strike(world: World, home: Row) -> bool:
    """Whether a fault that cost records may be missing, or the end of a process before a power cut."""
    lost = graves(world)
    if world.given.flush != "every":
        return bool(lost)
    named = {node for act in world.acts for node in act.nodes}
    somebody_ended = "end" in world.hidden or world.died != [] or any(ends(world, node) for node in named)
    if world.flushes or not somebody_ended:
        return bool(lost - {"power_cut"})
    cut = any(act.f == "power_cut" and node not in world.died for node, act in struck_by(world, home)
              if world.died is not None)
    return bool(lost) or ("end" in world.hidden and cut)


def chosen_from_struck(world: World, home: Row, struck: list[tuple[int, str]]) -> list[tuple[Row, float]]:
    """The elections, each with whether its leader and ISR were all struck."""
    words = [event for event in rulings(world, "elect", "isr") if event.partition == home.key]
    return [(event, min(is_struck(world, node, event, words[:place], struck)
                        for node in {event.leader, *event.isr}))
            for place, event in enumerate(words) if event.event == "elect" and event.leader is not None]


def is_struck(world: World, node: str, election: Row, words: list[Row], struck: list[tuple[int, str]]
              ) -> float:
    """Whether this copy had been struck before the election, and had not joined the ISR since in an
    incarnation that began after the strike. `words`: the controller's lines before the election."""
    lives = [event.time for event in world.trace or [] if event.node == node and event.event == "start"]
    taken_in = [event.time for before, event in pairwise([Row(isr=[]), *words])
                if event.event == "isr" and node in event.isr and node not in before.isr]
    backs = {time: max((min(earlier(world, time, life), earlier(world, life, entry))
                        for life in lives for entry in taken_in), default=0) for time, _ in struck}
    return max((min(earlier(world, time, election.time), 1 - backs[time])
                for time, who in struck if who == node), default=0)


def of_lost_write(world: World, send: Row) -> Cause | None:
    return Cause(ACKS) if world.given.acks != "all" else losing_cause(world, send)


def internal_topics(world: World, send: Row) -> Cause | None:
    """The coordinator's record of the txn, or its marker beside this record, may be lost. No trace shows."""
    losing = [act.position for act in world.acts if act.lost or act in asks(world, None)]
    after = any(position > send.since for position in losing)
    unseen = graves(world) or "elect" in world.hidden or (world.disordered and losing)
    lost = after or unseen or world.given.unclean_leader_election is True or losing_cause(world, send)
    return Cause(INTERNAL, sure=False) if lost else None


def follows(world: World, concerned: Iterable[Row], *, acks: bool = False) -> Cause | None:
    """A finding about these sends is permitted if one of them is itself lost by a permitted cause; by acks
    only if no read returned it (what was read had been committed). If the leader's log cannot show what was
    lost, each may have been, and the cause is unsure."""
    causes: list[Cause | None] = []
    for send in concerned:
        weak = acks and world.given.acks != "all" and not send.read_at
        cause = None
        if send.gone is not False:
            cause = Cause(ACKS) if weak else losing_cause(world, send)
        if cause is not None:
            causes.append(Cause(cause.by, sure=cause.sure and (weak or send.gone is True)))
    return first(causes)


def follows_values(world: World, partition: int, values: Collection[int], *, acks: bool = False
                   ) -> Cause | None:
    return follows(world, [send for send in world.sends if send.partition == partition
                           and send.value in values], acks=acks)


def follows_offsets(world: World, partition: int, concerned: range) -> Cause | None:
    """For what consumers saw: one of these offsets (below an end, or skipped) is that of a record lost by a
    permitted cause. An info send's offset is where it was read."""
    return follows(world, [
        send for send in world.sends if send.partition == partition and any(
            offset in concerned for offset in (
                send.read_at | send.acks if send.twice else
                send.read_at if send.offset is None else {send.offset}))])


def retried(world: World) -> Cause | None:
    return Cause(RETRIES) if world.given.get("retries", 0) > 0 and not world.given.idempotence else None


def uncommitted(world: World) -> Cause | None:
    return Cause(ISOLATION) if world.given.isolation == "read_uncommitted" else None
