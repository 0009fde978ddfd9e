"""The shape of a message, walked before kio reads it: every length and count must fit the frame.

kio's native parser sets memory aside for as many elements as an array's count announces, and aborts the whole
process when that is more than there is: four bytes of garbage would end a broker. So each frame is walked
first by what kio's own classes say of its fields.

Rules
1. A walk reads lengths and counts only, and ends where the message ends.
2. What does not fit is a ShapeError; what fits is not yet valid, kio still decides that.
"""

import struct
from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin

_SIZES = {
    "int8": 1, "bool": 1, "int16": 2, "uint16": 2, "error_code": 2, "int32": 4, "uint32": 4,
    "timedelta_i32": 4, "int64": 8, "uint64": 8, "float64": 8, "timedelta_i64": 8, "datetime_i64": 8,
    "uuid": 16,
}  # fmt: skip
_I16, _I32 = struct.Struct(">h"), struct.Struct(">i")

Walk = Callable[[bytes, int], int]  # frame, where it begins -> where it ends; IndexError, struct.error beyond


class ShapeError(ValueError):
    """A length or a count that cannot be."""


def walk(cls: Any, frame: bytes, at: int) -> int:
    """Where a message of this kio class ends that begins at `at`. ShapeError if that cannot be."""
    try:
        end = _walk_of(cls)(frame, at)
    except (IndexError, struct.error) as error:
        raise ShapeError(f"the frame ends too early: {error}") from error
    if end > len(frame):
        raise ShapeError(f"{end - len(frame)} bytes are missing")
    return end


@cache
def _walk_of(cls: Any) -> Walk:
    flexible = bool(cls.__flexible__)
    steps: list[int | Walk] = []  # a number of bytes, or a walk
    tags: dict[int, Walk] = {}
    for field in fields(cls):
        step = _step_of(field, flexible)
        if "tag" in field.metadata:
            tags[field.metadata["tag"]] = _walk_all([step])
        elif isinstance(step, int) and steps and isinstance(steps[-1], int):
            steps[-1] += step
        else:
            steps.append(step)
    if flexible:
        steps.append(_tagged(tags))
    return _walk_all(steps)


def _walk_all(steps: list[int | Walk]) -> Walk:
    walks = [_skip(step) if isinstance(step, int) else step for step in steps]
    if len(walks) == 1:
        return walks[0]

    def run(frame: bytes, at: int) -> int:
        for each in walks:
            at = each(frame, at)
        return at

    return run


def _skip(size: int) -> Walk:
    return lambda frame, at: at + size


def _step_of(field: Field[Any], flexible: bool) -> int | Walk:
    kind = _without_none(field.type)
    array = get_origin(kind) is tuple
    if array:
        kind = _without_none(get_args(kind)[0])
    if is_dataclass(kind):
        nested: Any = kind
        one: int | Walk = _walk_of(nested)
    else:
        name = field.metadata["kafka_type"]
        one = _SIZES[name] if name in _SIZES else _sized(wide=name in {"bytes", "records"}, flexible=flexible)
    return _array(one, flexible) if array else one


def _without_none(kind: Any) -> Any:
    """The type of an optional one."""
    given = [each for each in get_args(kind) if each is not type(None)]
    return given[0] if type(None) in get_args(kind) else kind


def _varint(frame: bytes, at: int) -> tuple[int, int]:
    byte = frame[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        at += 1
        byte = frame[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 35:
            raise ShapeError("no varint")
    return value, at + 1


def _sized(*, wide: bool, flexible: bool) -> Walk:
    """A string or bytes: a length, and so many bytes."""
    def compact(frame: bytes, at: int) -> int:
        length, at = _varint(frame, at)
        return at + length - 1 if length else at

    number = _I32 if wide else _I16

    def plain(frame: bytes, at: int) -> int:
        length = number.unpack_from(frame, at)[0]
        if length < -1:
            raise ShapeError(f"a length of {length}")
        return int(at + number.size + max(length, 0))

    return compact if flexible else plain


def _array(one: int | Walk, flexible: bool) -> Walk:
    """A count, and so many elements, each of at least one byte."""
    def run(frame: bytes, at: int) -> int:
        if flexible:
            count, at = _varint(frame, at)
            count -= 1
        else:
            count, at = _I32.unpack_from(frame, at)[0], at + 4
        if count < -1 or count > len(frame) - at:
            raise ShapeError(f"an array of {count} elements in {len(frame) - at} bytes")
        if isinstance(one, int):
            return at + one * max(count, 0)
        for _ in range(count):
            at = one(frame, at)
        return at

    return run


def _tagged(tags: dict[int, Walk]) -> Walk:
    """Tagged fields: known ones must be as long as they say."""
    def run(frame: bytes, at: int) -> int:
        if frame[at] == 0:
            return at + 1
        count, at = _varint(frame, at)
        for _ in range(count):
            tag, at = _varint(frame, at)
            size, at = _varint(frame, at)
            if tag not in tags or tags[tag](frame, at) != at + size:
                raise ShapeError(f"tagged field {tag} of {size} bytes")
            at += size
        return at

    return run
