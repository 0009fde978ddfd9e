"""The laws of a line written again in plain Python, to check the judge's reader against."""

from collections.abc import Callable, Mapping
from typing import Any

from floodmark.checkers.read.folder import is_int
from floodmark.harness.op import NEMESIS, Type

CLIENT_FS = frozenset({"send", "poll", "txn", "assign", "subscribe", "crash", "list_offsets"})
TYPES = frozenset(kind.value for kind in Type)
_NEEDED_BY_OK = {
    "poll": "reads",
    "list_offsets": "offsets",
    "assign": "partitions",
    "subscribe": "partitions",
}

Law = Callable[[Mapping[str, Any]], bool]


def is_op(row: Mapping[str, Any]) -> bool:
    """Whether the row fits the field table of history.jsonl."""
    f, kind, process = row.get("f"), row.get("type"), row.get("process")
    if not is_place(row.get("index")) or not is_place(row.get("time")) or not is_int(process):
        return False
    if not isinstance(kind, str) or kind not in TYPES or not isinstance(f, str) or process < NEMESIS:
        return False
    if not isinstance(row.get("error", ""), str | None):
        return False
    items = (
        is_list(row, "sends", is_send)
        and is_list(row, "reads", lambda r: is_named(r) and is_place(r.get("offset")))
        and is_list(row, "offsets", lambda o: is_start(o) and has_epoch_or_none(o))
        and is_list(row, "starts", is_start)
        and all(map(is_place, listed(row, "partitions")))
    )
    if process == NEMESIS:
        return items and kind == Type.INFO and isinstance(row.get("fault"), dict)
    needed = row.get(_NEEDED_BY_OK[f]) is not None if kind == Type.OK and f in _NEEDED_BY_OK else True
    return items and needed and f in CLIENT_FS and (f != "send" or bool(row.get("sends")))


def is_entry(node: str) -> Law:
    """The law of a line of this node's dump."""

    def law(row: Mapping[str, Any]) -> bool:
        flags = [row.get(name) for name in ("crc_ok", "aborted")]
        return (
            row.get("node") == node
            and is_place(row.get("partition"))
            and is_place(row.get("offset"))
            and is_int(row.get("epoch"))
            and row["epoch"] >= -1
            and is_int(row.get("crc"))
            and "value" in row
            and (row["value"] is None or is_int(row["value"]))
            and all(flag is None or isinstance(flag, bool) for flag in flags)
        )

    return law


def listed(row: Mapping[str, Any], name: str) -> list[Any]:
    """The field's list; if it is no list, one that breaks every law."""
    value = row.get(name)
    return [] if value is None else value if isinstance(value, list) else [None]


def is_list(row: Mapping[str, Any], name: str, law: Law) -> bool:
    return all(isinstance(item, dict) and law(item) for item in listed(row, name))


def is_send(item: Mapping[str, Any]) -> bool:
    return is_named(item) and (item.get("offset") is None or is_place(item["offset"]))


def is_named(item: Mapping[str, Any]) -> bool:
    return is_place(item.get("partition")) and is_int(item.get("value")) and has_epoch_or_none(item)


def is_start(item: Mapping[str, Any]) -> bool:
    return is_place(item.get("partition")) and is_place(item.get("offset"))


def has_epoch_or_none(item: Mapping[str, Any]) -> bool:
    return item.get("epoch") is None or is_int(item["epoch"])


def is_place(value: Any) -> bool:
    return is_int(value) and value >= 0
