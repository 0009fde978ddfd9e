"""The trace lines of a start and of the controller's records (a replica's: tests/golden/replica.txt)."""

from collections.abc import Sequence
from typing import Any

from floodmark.broker.protocol.controller import Controller, ControllerConfig
from floodmark.broker.protocol.messages import (
    AlterTopic,
    Batch,
    CreateTopic,
    DeleteTopic,
    Expire,
    GrowTopic,
    Heartbeat,
    Persist,
    Register,
)
from floodmark.broker.testing.bugs import rules_for
from floodmark.broker.testing.trace_events import (
    RecoveredLogSummary,
    controller_lines,
    missing_lines,
    start_lines,
)

ISR = (1, 2, 3)


def test_a_start_has_a_line_of_its_own_and_one_for_each_log() -> None:
    log = RecoveredLogSummary(topic="log", partition=0, log_start=1, leo=3, hw=2,
                              batches=[Batch(base_offset=1, last_offset=2, epoch=4)])
    own, found = start_lines(False, [log])
    assert own == {"event": "start", "clean": False}
    assert found == {"event": "start", "topic": "log", "partition": 0, "epoch": -1, "leo": 3, "hw": 2,
                     "clean": False, "log_start": 1, "epochs": [(4, 1)]}


class TracedController:
    """A controller whose steps are traced."""

    def __init__(self, rules: str = "kip-320", bugs: Sequence[str] = (), *, unclean: bool = False) -> None:
        config = ControllerConfig(unclean_leader_election=unclean)
        self.controller = Controller(config, (), rules_for(rules, bugs))
        self.journal: list[Any] = []

    def step(self, event: Any) -> list[dict[str, Any]]:
        before = self.controller.metadata()
        lines: list[dict[str, Any]] = []
        for effect in self.controller.step(event):
            if isinstance(effect, Persist):
                self.journal += effect.records
                lines += [dict(line) for line in controller_lines(before, event, effect.records)]
        return lines

    def register(self, broker: int, incarnation: str = "a", *, clean: bool = False) -> list[dict[str, Any]]:
        return self.step(Register(now_ms=0, token=None, broker=broker, incarnation=incarnation, host="h",
                                  port=1, clean=clean))

    def heartbeat(self, broker: int, *, stopping: bool = False) -> list[dict[str, Any]]:
        epoch = self.controller.metadata().broker_epochs.get(broker, broker - 1)
        return self.step(Heartbeat(now_ms=0, token=None, broker=broker, broker_epoch=epoch,
                                   metadata_version=99, stopping=stopping))

    def create(self) -> list[dict[str, Any]]:
        for broker in ISR:
            self.register(broker)
        for broker in ISR:
            self.heartbeat(broker)
        return self.step(CreateTopic(now_ms=0, token=None, topic="log", topic_id="0" * 32, partitions=1,
                                     replication_factor=3, assignment=(ISR,), configs={}))

    def expire(self, broker: int) -> list[dict[str, Any]]:
        return self.step(Expire(now_ms=0, token=None, broker=broker))


def events(lines: Sequence[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in lines]


def test_a_bounce_that_is_overlooked_is_a_registration_that_is_not_fenced() -> None:
    """KAFKA-1120: nothing else changes."""
    controller = TracedController(bugs=["no_epoch_bump_on_bounce"])
    controller.create()
    assert events(controller.register(1, "b")) == ["register", "unfence"]
    right = TracedController()
    right.create()
    assert events(right.register(1, "b")) == ["register", "elect"]


def told(line: dict[str, Any]) -> str:
    """An event of the controller in brief: its version, of whom, and why."""
    whom = line.get("broker", f"{line.get('partition')} {line.get('leader')} in {line.get('epoch')}")
    clean = {True: ", clean", False: ", unclean"}.get(line.get("clean"), "")
    cause = f", {line['cause']}" if "cause" in line else ""
    return f"{line['version']}: {line['event']} {whom}{clean}{cause}"


def test_the_lines_of_a_controllers_life() -> None:
    """Each change of a broker or a partition has a line; a config makes a version and no line."""
    one = TracedController(unclean=True)
    story = [
        one.register(1, clean=True), one.register(2), one.heartbeat(1), one.heartbeat(2),
        one.step(CreateTopic(now_ms=0, token=None, topic="log", topic_id="0" * 32, partitions=1,
                             replication_factor=2, assignment=((1, 2),), configs={})),
        one.step(AlterTopic(now_ms=0, token=None, topic="log", configs={"flush.messages": "1"})),
        one.step(GrowTopic(now_ms=0, token=None, topic="log", partitions=2, assignment=((2, 1),))),
        one.expire(1), one.expire(2), one.heartbeat(1),
        one.step(DeleteTopic(now_ms=0, token=None, topic="log")),
        one.step(CreateTopic(now_ms=0, token=None, topic="log", topic_id="1" * 32, partitions=1,
                             replication_factor=1, assignment=((1,),), configs={})),
    ]
    assert [told(line) for lines in story for line in lines] == [
        "1: register 1, clean", "2: register 2, unclean", "3: unfence 1", "4: unfence 2",
        "5: elect 0 1 in 0, clean, created", "7: elect 1 2 in 0, clean, created", "8: fence 1",
        "9: elect 0 2 in 1, clean, expired", "10: isr 1 2 in 0, expired", "11: fence 2",
        "12: isr 0 -1 in 2, expired", "13: isr 1 -1 in 1, expired", "14: unfence 1",
        "15: elect 0 1 in 3, unclean, heartbeat", "16: elect 1 1 in 2, unclean, heartbeat",
        "18: elect 0 1 in 0, clean, created",
    ]


def test_durable_records_that_were_not_traced_are_traced_at_the_next_start() -> None:
    """All of them, from any version; none where all were traced. Records without a line (of a broker, of
    configs) count too."""
    controller = TracedController()
    lines = controller.create()
    controller.step(AlterTopic(now_ms=0, token=None, topic="log", configs={"flush.messages": "1"}))
    controller.heartbeat(3, stopping=True)
    lines = [dict(line) for line in missing_lines(controller.journal, 0)]
    assert events(lines) == ["register"] * 3 + ["unfence"] * 3 + ["elect", "isr"]
    assert [line["version"] for line in lines] == [1, 2, 3, 4, 5, 6, 7, 10]
    for version in range(11):
        rest = [line for line in lines if line["version"] > version]
        assert events([dict(line) for line in missing_lines(controller.journal, version)]) == events(rest)
