"""Lists the broker's failpoints as the harness knows them: where each is, and the actions that it allows.

The list is written on both sides on purpose, like the codecs; a contract test compares them. Entries use them
as harness/schedule/entry.py describes.
"""

from dataclasses import dataclass

REPORT, CRASH, HOLD, DELAY, DROP, DUPLICATE = "report", "crash", "hold", "delay", "drop", "duplicate"
STOPS = (REPORT, CRASH, HOLD, DELAY)
LOST = (*STOPS, DROP)  # for a message, which can be lost
TWICE = (*LOST, DUPLICATE)  # for a message that can be duplicated, too
ACTIONS = TWICE
SCOPES = ("partition", "broker")
STANDING = (HOLD, DELAY)  # actions that scope broker allows


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A place between two steps of the protocol."""

    name: str
    stands: str
    actions: tuple[str, ...] = STOPS
    of_controller: bool = False


POINTS: dict[str, Point] = {
    point.name: point
    for point in (
        Point(name="F.appended", stands="a follower has appended, its HW not moved"),
        Point(name="F.before_refetch", stands="a follower's next fetch, not sent", actions=LOST),
        Point(name="F.truncated", stands="a follower has truncated and not fetched again"),
        Point(name="F.epoch_req", stands="the first question of a leader epoch, not sent", actions=LOST),
        Point(name="F.fetch_resp", stands="the answer to a fetch has come, not taken", actions=TWICE),
        Point(name="F.followed", stands="a replica has become follower"),
        Point(name="L.elected", stands="a replica has become leader and done nothing yet"),
        Point(name="L.acked", stands="the leader has acked, its followers' HW is behind"),
        Point(name="L.hw", stands="the leader's HW has moved"),
        Point(name="P.parked", stands="a produce waits for its ISR"),
        Point(name="L.alter_sent", stands="an ISR proposed, not sent", actions=TWICE),
        Point(name="L.alter_answer", stands="the answer to a proposal has come, not taken", actions=TWICE),
        Point(name="D.ckpt", stands="the HW checkpoint is written"),
        Point(name="D.ckpt_done", stands="all HWs were looked at, and written if one had moved",
              actions=(REPORT, CRASH)),
        Point(name="D.fsync", stands="a log is fsynced"),
        Point(name="B.registered", stands="the broker is registered"),
        Point(name="C.elected", stands="who leads now, not sent to a broker", actions=TWICE,
              of_controller=True),
        Point(name="C.alter_applied", stands="an ISR applied, the answer not sent", actions=LOST,
              of_controller=True),
    )
}
