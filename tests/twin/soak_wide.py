"""Writes a run of very many partitions, of which few were used: `wide(folder, partitions=1_000_000)`.

Rules kept here: each partition has one replica, every node leads a third of them; the last partition's acked
record is not in its log, and nothing else is wrong.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
from folders import NODES, settled_run

USED = 200  # partitions that anything was sent to
READER = 900


def wide(path: Path, *, partitions: int) -> Path:
    """Writes the folder."""
    (path / "logs").mkdir(parents=True)
    used = [*range(min(USED, partitions) - 1), partitions - 1]
    numbered = enumerate(history(used, partitions))
    lines = [orjson.dumps({"index": index, "time": index, **line}) for index, line in numbered]
    (path / "history.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (path / "run.json").write_bytes(orjson.dumps(run_of(partitions, len(lines))))
    lost, held = used[-1], set(used[:-1])
    with (path / "replicas.jsonl").open("wb") as rows:
        for key in range(partitions):
            rows.write(orjson.dumps(row_of(key, int(key in held)), option=orjson.OPT_APPEND_NEWLINE))
    for number, node in enumerate(NODES):
        entries = [{"node": node, "partition": key, "offset": 0, "epoch": 0, "value": key, "crc": 1}
                   for key in used if key % len(NODES) == number and key != lost]
        (path / "logs" / f"{node}.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def leader_of(key: int) -> str:
    return NODES[key % len(NODES)]


def run_of(partitions: int, lines: int) -> dict[str, Any]:
    run = settled_run(NODES, [0])
    keys = range(partitions)
    return run | {
        "partitions": {
            str(key): {"topic": "t", "partition": key, "replicas": [leader_of(key)]} for key in keys},
        "leaders": {
            str(key): {"leader": leader_of(key), "epoch": 0, "isr": [leader_of(key)]} for key in keys},
        "final_reads": {"processes": [READER], "partitions": list(keys)}, "history_lines": lines}


def row_of(key: int, leo: int) -> dict[str, Any]:
    node = leader_of(key)
    return {"node": node, "partition": key, "leader": node, "epoch": 0, "log_start": 0, "leo": leo, "hw": leo,
            "isr": [node], "clean": True, "epochs": [[0, 0]]}


def history(used: list[int], partitions: int) -> Iterator[dict[str, Any]]:
    """A value sent to every used partition, its number; then everything is read."""
    for key in used:
        send = {"partition": key, "value": key}
        yield {"process": 1, "type": "invoke", "f": "send", "sends": [send]}
        yield {"process": 1, "type": "ok", "f": "send", "sends": [{**send, "offset": 0}]}
    for kind in ("invoke", "ok"):
        yield {"process": READER, "type": kind, "f": "assign", "partitions": list(range(partitions))}
    yield {"process": READER, "type": "invoke", "f": "poll"}
    reads = [{"partition": key, "offset": 0, "value": key} for key in used[:-1]]
    yield {"process": READER, "type": "ok", "f": "poll", "reads": reads}
