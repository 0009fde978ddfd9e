"""Laws of any trace that belongs to its run, whatever the brokers' rules: folder -> breaches.

They check the trace, not the protocol: no line is false, none is late. The logs that appends, truncations
and starts add up to must be the dumped ones; what clients saw must be in the trace before they saw it.
(That no line is missing, and each has its fields, the judge tells: otherwise it cannot tell something.)
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from folders import Line, RunFolder

Key = tuple[str, int]  # node and partition
# The fields of each event, besides time, node, seq and event. A replica's lines also have `partition` and
# STATE, except the controller's `isr`, which has no LEO and no HW.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "append": ("role", "offset", "count", "epochs"),
    "truncate": ("from", "to", "cause", "why"),
    "hw": ("role",),
    "become_leader": ("isr", "start"),
    "become_follower": ("leader",),
    "fetch": ("follower", "offset", "follower_epoch"),
    "ack": ("offset", "acks", "isr"),
    "isr_proposed": ("isr", "partition_epoch"),
    "isr": ("leader", "epoch", "isr", "partition_epoch", "cause"),
    "elect": ("leader", "epoch", "isr", "partition_epoch", "clean"),
    "register": ("broker", "broker_epoch", "clean"),
    "fence": ("broker", "broker_epoch"),
    "unfence": ("broker", "broker_epoch"),
    "checkpoint": ("what", "value"),
    "crash": (),
    "start": ("clean",),
    "failpoint": ("name", "action"),
}
STATE = ("epoch", "leo", "hw")


def breaches(folder: Path) -> list[str]:
    """The breaches of every law, in one list; empty means correct."""
    run, logs = RunFolder.read(folder), Logs()
    lines = run.trace or []
    return [*logs.follow(lines), *logs.against(run), *metadata(lines), *seen_by_clients(lines, run.lines)]


class Logs:
    """Each replica's log according to the trace: the epoch of every offset, LEO and HW."""

    def __init__(self) -> None:
        self.epochs: dict[Key, dict[int, int]] = {}
        self.leo: dict[Key, int] = {}
        self.hw: dict[Key, int] = {}

    def follow(self, lines: list[Line]) -> Iterator[str]:
        """Each line's state is the one before it, changed by the line's event and by nothing else."""
        for line in lines:
            if "leo" not in line or line["event"] == "failpoint":
                continue
            key = (line["node"], line["partition"])
            leo, hw = self.leo.get(key, 0), self.hw.get(key, 0)
            change = getattr(self, "_" + line["event"], None)
            expected = change(key, line, leo, hw) if change is not None else (leo, hw)
            if (line["leo"], line["hw"]) != expected:
                yield f"LEO, HW {expected} expected: {line}"
            self.leo[key], self.hw[key] = line["leo"], line["hw"]
            if line["event"] == "fetch" and line["offset"] > self.leo.get((line["follower"], key[1]), 0):
                yield f"fetches above the follower's LEO: {line}"
            if line["event"] == "ack" and line["offset"] >= leo:
                yield f"acked and not appended: {line}"

    def _append(self, key: Key, line: Line, leo: int, hw: int) -> tuple[int, int]:
        log = self.epochs.setdefault(key, {})
        ends = [start for _, start in line["epochs"][1:]] + [line["offset"] + line["count"]]
        for (epoch, start), end in zip(line["epochs"], ends, strict=True):
            log |= dict.fromkeys(range(start, end), epoch)
        return (leo + line["count"] if line["offset"] == leo else -1), hw

    def _truncate(self, key: Key, line: Line, leo: int, hw: int) -> tuple[int, int]:
        self._cut(key, line["to"])
        return (line["to"] if line["from"] == leo else -1), min(hw, line["to"])

    def _hw(self, key: Key, line: Line, leo: int, hw: int) -> tuple[int, int]:
        return leo, (line["hw"] if line["hw"] != hw else -1)

    def _start(self, key: Key, line: Line, leo: int, _hw: int) -> tuple[int, int]:
        """Records of the trace that are not on disk never happened; no log has more records than the
        trace."""
        self._cut(key, line["leo"])
        return min(leo, line["leo"]), line["hw"]

    def _cut(self, key: Key, to: int) -> None:
        log = self.epochs.setdefault(key, {})
        self.epochs[key] = {offset: epoch for offset, epoch in log.items() if offset < to}

    def against(self, run: RunFolder) -> Iterator[str]:
        """Compares with the dumps, and with the last line of every replica that ran to the end."""
        for row in run.rows:
            key = (row["node"], row["partition"])
            if not row.get("running", True):
                continue
            if (row["leo"], row["hw"]) != (self.leo.get(key, 0), self.hw.get(key, 0)):
                yield f"LEO, HW of {key}: {row['leo']}, {row['hw']}, traced {self.leo[key]}, {self.hw[key]}"
            if {entry["offset"]: entry["epoch"] for entry in run.log(*key)} != self.epochs.get(key, {}):
                yield f"the log of {key} is not what the trace adds up to"


def metadata(lines: list[Line]) -> Iterator[str]:
    """The controller's changes follow one another, and leaders learn its decisions, not before they are
    made."""
    decided: dict[tuple[int, int], Line] = {}
    last: dict[int, int] = {}
    for line in lines:
        partition = line.get("partition")
        if partition is None or "partition_epoch" not in line or line["event"] == "isr_proposed":
            continue
        version = (partition, line["partition_epoch"])
        if line["node"] == "controller":
            if line["partition_epoch"] != last.get(partition, -1) + 1:
                yield f"partition epoch {last.get(partition, -1) + 1} expected: {line}"
            last[partition] = line["partition_epoch"]
            decided[version] = line
        elif version not in decided or decided[version]["isr"] != line["isr"]:
            yield f"the controller did not decide this: {line}"


def seen_by_clients(lines: list[Line], history: list[Line]) -> Iterator[str]:
    """No client saw an ack, or a record below the HW, that was not in the trace before."""
    events = sorted(
        [(line["time"], 0, line) for line in lines if "hw" in line]
        + [(op["time"], 1, op) for op in history if op["type"] == "ok"],
        key=lambda each: each[:2],
    )  # fmt: skip
    acked: set[tuple[int, int]] = set()
    highest: dict[int, int] = {}
    for _, is_op, item in events:
        if not is_op and "partition" in item:
            partition = item["partition"]
            highest[partition] = max(highest.get(partition, 0), item["hw"])
            if item["event"] == "ack":
                acked.add((partition, item["offset"]))
        elif item.get("f") == "send":
            last = max(item["sends"], key=lambda one: one["offset"])
            if (last["partition"], last["offset"]) not in acked:
                yield f"acked without a line of the trace: {item}"
        elif item.get("f") == "poll":
            for read in item["reads"]:
                if read["offset"] >= highest.get(read["partition"], 0):
                    yield f"read above every HW of the trace: {read}, op {item['index']}"
