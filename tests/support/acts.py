"""Builds the entries of schedules written by hand: a send, a wait, and conditions on partition 0."""

from collections.abc import Mapping
from typing import Any

from floodmark.harness.schedule.entry import Entry


def send(value: int) -> Entry:
    return Entry(f="send", args={"sends": [{"partition": 0, "value": value}]})


def wait(*states: Mapping[str, Any], timeout_s: float = 30.0) -> Entry:
    return Entry(f="wait", timeout_s=timeout_s,
                 moment={"at": "state", "all": [dict(state) for state in states]})


def seen(replica: str, field: str, how: str, value: Any) -> dict[str, Any]:
    return {"partition": 0, "replica": replica, "field": field, "is": how, "value": value}


def led_by(node: str) -> dict[str, Any]:
    return {"partition": 0, "field": "leader", "is": "==", "value": node}


def isr(*nodes: str) -> dict[str, Any]:
    return {"partition": 0, "field": "isr", "is": "==", "value": list(nodes)}
