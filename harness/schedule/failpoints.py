"""Lists the broker's failpoints: where each is, and the actions that it allows.

The broker has its own list, on purpose, like the codecs; a contract test compares the two.
nemesis/README.md describes how entries use them.
"""

from dataclasses import dataclass

REPORT, CRASH, HOLD, DELAY, DROP, DUPLICATE = "report", "crash", "hold", "delay", "drop", "duplicate"
STOP_ACTIONS = (REPORT, CRASH, HOLD, DELAY)
MESSAGE_ACTIONS = (*STOP_ACTIONS, DROP)  # for a message that can be dropped
ALL_ACTIONS = (*MESSAGE_ACTIONS, DUPLICATE)  # for a message that can also be duplicated
ACTIONS = ALL_ACTIONS
SCOPES = ("partition", "broker")
BROKER_SCOPE_ACTIONS = (HOLD, DELAY)  # actions that scope broker allows


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A failpoint, which is a place between two steps of the protocol. when: the moment it marks, for
    messages."""

    name: str
    when: str
    actions: tuple[str, ...] = STOP_ACTIONS
    of_controller: bool = False


POINTS: dict[str, Point] = {
    point.name: point
    for point in (
        Point(name="F.appended", when="a follower has appended and not moved its HW yet"),
        Point(name="F.before_refetch", when="a follower has not sent its next fetch yet",
              actions=MESSAGE_ACTIONS),
        Point(name="F.truncated", when="a follower has truncated and not fetched again yet"),
        Point(name="F.epoch_req", when="a replica has not sent its first request for a leader epoch yet",
              actions=MESSAGE_ACTIONS),
        Point(name="F.fetch_resp", when="a follower has not processed a fetch response yet",
              actions=ALL_ACTIONS),
        Point(name="F.followed", when="a replica has become follower"),
        Point(name="L.elected", when="a replica has become leader and done nothing yet"),
        Point(name="L.acked", when="the leader has acked, and its followers' HW is lower"),
        Point(name="L.hw", when="the leader's HW has moved"),
        Point(name="P.parked", when="a produce waits for the ISR"),
        Point(name="L.alter_sent", when="the leader has not sent its proposal of an ISR yet",
              actions=ALL_ACTIONS),
        Point(name="L.alter_answer", when="the leader has not processed the response to a proposal yet",
              actions=ALL_ACTIONS),
        Point(name="D.ckpt", when="the HW checkpoint is written"),
        Point(name="D.ckpt_done", when="all HWs were checked, and written if one had moved",
              actions=(REPORT, CRASH)),
        Point(name="D.fsync", when="a log is fsynced"),
        Point(name="B.registered", when="the broker is registered"),
        Point(name="C.elected", when="the controller has not sent a new leader to a broker yet",
              actions=ALL_ACTIONS, of_controller=True),
        Point(name="C.alter_applied", when="the controller has applied an ISR and not sent the response yet",
              actions=MESSAGE_ACTIONS, of_controller=True),
    )
}
