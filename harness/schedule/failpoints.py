"""Lists the broker's failpoints: where each is, and the actions that it allows.

The broker has its own list, on purpose, like the codecs; a contract test compares the two.
harness/schedule/entry.py describes how entries use them.
"""

from dataclasses import dataclass

REPORT, CRASH, HOLD, DELAY, DROP, DUPLICATE = "report", "crash", "hold", "delay", "drop", "duplicate"
STOP_ACTIONS = (REPORT, CRASH, HOLD, DELAY)
MESSAGE_ACTIONS = (*STOP_ACTIONS, DROP)  # for a message that can be dropped
ACTIONS = (*MESSAGE_ACTIONS, DUPLICATE)  # for a message that can also be duplicated
SCOPES = ("partition", "broker")
BROKER_SCOPE_ACTIONS = (HOLD, DELAY)  # actions that scope broker allows


@dataclass(frozen=True, slots=True)
class Point:
    """A failpoint, which is a place between two steps of the protocol."""

    name: str
    when: str  # the moment that it marks, for messages
    actions: tuple[str, ...] = STOP_ACTIONS
    of_controller: bool = False


POINTS: dict[str, Point] = {
    point.name: point
    for point in (
        Point("F.appended", "a follower has appended and not moved its HW yet"),
        Point("F.before_refetch", "a follower has not sent its next fetch yet", MESSAGE_ACTIONS),
        Point("F.truncated", "a follower has truncated and not fetched again yet"),
        Point("F.epoch_req", "a replica has not sent its first request for a leader epoch yet",
              MESSAGE_ACTIONS),
        Point("F.fetch_resp", "a follower has not processed a fetch response yet", ACTIONS),
        Point("F.followed", "a replica has become follower"),
        Point("L.elected", "a replica has become leader and done nothing yet"),
        Point("L.acked", "the leader has acked, and its followers' HW is lower"),
        Point("L.hw", "the leader's HW has moved"),
        Point("P.parked", "a produce waits for the ISR"),
        Point("L.alter_sent", "the leader has not sent its proposal of an ISR yet", ACTIONS),
        Point("L.alter_answer", "the leader has not processed the response to a proposal yet", ACTIONS),
        Point("D.ckpt", "the HW checkpoint is written"),
        Point("D.ckpt_done", "all HWs were checked, and written if one had moved", (REPORT, CRASH)),
        Point("D.fsync", "a log is fsynced"),
        Point("B.registered", "the broker is registered"),
        Point("C.elected", "the controller has not sent a new leader to a broker yet", ACTIONS,
              of_controller=True),
        Point("C.alter_applied", "the controller has applied an ISR and not sent the response yet",
              MESSAGE_ACTIONS, of_controller=True),
    )
}
