"""Run folders with exact times, for tests of what faults cost: sends, faults and lines of a trace at seconds.

    run = TimedRun().sent(1, 8, 9).fault("kill", 10, 10.5, "n1").fault("start", 14, 14, "n1")
    run.write(folder)
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from folders import Tale

Line = dict[str, Any]


def ns(time_s: float) -> int:
    return round(time_s * 1_000_000_000)


@dataclass(slots=True)
class TimedRun:
    partitions: int = 1
    about: Line = field(default_factory=dict)  # further fields of run.json
    lines: list[Line] = field(default_factory=list)
    trace: list[Line] = field(default_factory=list)
    values: int = 0

    def sent(self, process: int, began_s: float, ended_s: float | None, kind: str = "ok", *,
             partition: int = 0, f: str = "send") -> "TimedRun":
        """Adds one send of one value; ended_s None: it has no answer."""
        self.values += 1
        op = {"process": process, "f": f, "sends": [{"partition": partition, "value": self.values}]}
        self.lines.append({"time": ns(began_s), "type": "invoke", **op})
        if ended_s is not None:
            self.lines.append({"time": ns(ended_s), "type": kind, **op})
        return self

    def polled(self, process: int, began_s: float, ended_s: float, kind: str = "ok") -> "TimedRun":
        op = {"process": process, "f": "poll"}
        self.lines.append({"time": ns(began_s), "type": "invoke", **op})
        self.lines.append({"time": ns(ended_s), "type": kind, **op, "reads": []})
        return self

    def fault(self, f: str, began_s: float, effect_s: float, *nodes: str, **more: Any) -> "TimedRun":
        fault = {"nodes": list(nodes), "began": ns(began_s), **more}
        self.lines.append({"time": ns(effect_s), "process": -1, "type": "info", "f": f, "fault": fault})
        return self

    def traced(self, time_s: float, event: str, **more: Any) -> "TimedRun":
        line = {"time": ns(time_s), "node": "n1", "seq": len(self.trace), "event": event, "partition": 0,
                "epoch": 1, **more}
        self.trace.append(line)
        return self

    def write(self, folder: Path) -> Path:
        """Writes the folder; lines with the same time keep the order in which they were added."""
        tale = Tale(partitions=self.partitions, final=False, trace=self.trace or None)
        tale.run.update(self.about)
        tale.lines = sorted(self.lines, key=lambda line: line["time"])
        return tale.write(folder)
