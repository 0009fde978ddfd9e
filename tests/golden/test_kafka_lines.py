"""The trace that is made of what Apache Kafka writes: saved INFO lines of brokers, records of controllers.

tests/golden/kafka_lines has those of one story on each of 2.8.2, 3.9.2 and 4.3.1, without most that tell
nothing: a leader with records of its own is killed, another is elected, the first comes back and truncates,
the second stops in order and returns, a follower is paused until it leaves the ISR. What is made of them
stands beside them (`pytest --rewrite`, then read the diff).
"""

from pathlib import Path

import orjson
import pytest
from golden_text import as_written
from trace_laws import FIELDS, STATE

from floodmark.harness.cluster.kafka import kafka_trace
from floodmark.harness.cluster.kafka.kafka_trace import Clock, read_line
from floodmark.harness.cluster.kafka.metadata_log import SEGMENT
from floodmark.harness.cluster.log_extents import METADATA
from floodmark.harness.trace import Line, Raw, merge

HERE = Path(__file__).parent / "kafka_lines"
WITHOUT = {"register": {"clean"}, "become_follower": {"leader"}, "truncate": {"why"}}  # what may be untold


def made(folder: Path, version: str) -> list[Line]:
    """trace.jsonl of the saved lines of n1 and n2, and of the controller where it is Kafka's own."""
    clock = Clock(ahead_ns=0)
    files = {name: folder / f"{name}.trace" for name in ("n1", "n2")}
    for number, (name, file) in enumerate(files.items(), start=1):
        kafka_trace.write_broker_trace(HERE / f"{version}-{name}.log", file, node_id=number, clock=clock)
    records = HERE / f"{version}-controller.records"
    if records.exists():
        (folder / METADATA).mkdir()
        (folder / METADATA / SEGMENT).write_bytes(records.read_bytes())
        files["controller"] = folder / "controller.trace"
        kafka_trace.write_controller_trace(folder, files["controller"], node_id=100, clock=clock)
    raw = Raw(files=files, names={1: "n1", 2: "n2", 3: "n3", 100: "controller"},
              keys={("a", 0): 0, ("b", 0): 1, ("old", 0): 1})
    problems: list[str] = []
    lines = [orjson.loads(line) for piece in merge(raw, 0, problems) for line in piece.splitlines()]
    assert not problems
    return lines


@pytest.mark.parametrize("version", ["2.8.2", "3.9.2", "4.3.1"])
def test_the_trace_of_a_story(version: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    lines = made(tmp_path, version)
    text = "".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE).decode() for line in lines)
    as_written(f"{HERE.name}/{version}.jsonl", text, request)
    for line in lines:
        needed = {*FIELDS[line["event"]]} - WITHOUT.get(line["event"], set())
        if line["event"] in ("become_leader", "become_follower", "truncate"):
            needed |= {*STATE, "partition"}
        assert needed <= line.keys(), line
    events = {line["event"] for line in lines}
    of_controllers = set() if version == "2.8.2" else {"elect", "isr", "register", "fence", "unfence"}
    assert events == {*kafka_trace.TRACED_EVENTS, "truncate", *of_controllers}


def test_lines_that_tell_something_else() -> None:
    """Near misses: nothing was cut, another log, another writer, another level, a line without its date."""
    stamp = "[2026-11-23 23:29:58,149] INFO "
    cut = "[Log partition=a-b-0, dir=/x] Truncating to offset 5 (kafka.log.Log)"

    said = read_line(stamp + cut)
    assert said is not None
    assert (said.kind, said.topic, said.partition, said.leo) == ("truncated", "a-b", 0, 5)
    for line in (
        cut,
        stamp.replace("INFO", "WARN") + cut,
        stamp + "[Log partition=a-0, dir=/x] Truncating to 0 has no effect as the largest offset is -1",
        stamp + "[LogLoader partition=a-0, dir=/x] Truncating to offset 5 (UnifiedLog)",
        stamp + "a client sent: Truncating to offset 5 (somebody)",
        stamp + "[Broker id=1] Leader a-0 starts at leader epoch 0 from offset 0 with high watermark 0. (x)",
        stamp + "[Broker id=1] Skipped the become-leader state change for a-0 (state.change.logger)",
        stamp + "Loaded 7 features (x)",
    ):
        assert read_line(line) is None, line


def test_a_cut_that_nobody_can_measure(tmp_path: Path) -> None:
    """Above the LEO that the last role told, or before any role: no line of the trace."""
    role = ("[2026-11-23 23:29:58,053] INFO [Broker id=1] Follower a-0 starts at leader epoch 1 from offset "
            "7 with high watermark 5. Previous leader epoch was -1. (state.change.logger)\n")
    cut = "[2026-11-23 23:29:58,{ms}] INFO [Log partition=a-0, dir=/x] Truncating to offset {to} (Log)\n"
    log, trace = tmp_path / "n1.log", tmp_path / "n1.trace"
    log.write_text(cut.format(ms="001", to=3) + role + cut.format(ms="060", to=8)
                   + cut.format(ms="052", to=4) + cut.format(ms="062", to=4))
    kafka_trace.write_broker_trace(log, trace, node_id=1, clock=Clock(ahead_ns=0))
    lines = [orjson.loads(line) for line in trace.read_bytes().splitlines()]

    assert [(line["event"], line["leo"], line["hw"]) for line in lines] == [
        ("become_follower", 7, 5), ("truncate", 4, 4)]
    assert lines[0]["time"] == lines[1]["time"], "a clock that was set back"
