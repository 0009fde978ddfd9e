"""Checks that every length and count of a message fits its frame, before kio reads it.

kio's native parser allocates memory for as many elements as an array's count says, and aborts the whole
process when there is not so much memory: four bytes of garbage would end a broker. So each frame is walked
first, by the fields of kio's own classes.

Rules
1. A walk reads lengths and counts only, and ends where the message ends. Bytes after it do not matter: Kafka
   ignores them too, and librdkafka sends some.
2. A length that does not fit is an InvalidFrame. A frame that passes is not yet valid: kio decides that.
3. Tagged fields that kio's class does not know are to be skipped (KIP-482), but kio raises on them: the walk
   notes each as an `Edit`, and kio reads a frame from which they are cut out.
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

Edit = tuple[int, int, bytes]  # from, to, and the bytes to put there
# (frame, start, edits to add to) -> end; raises IndexError or struct.error beyond the frame
Walk = Callable[[bytes, int, list[Edit]], int]


class InvalidFrame(ValueError):
    """A length or a count does not fit the frame."""


def make_readable(cls: Any, frame: bytes, at: int) -> bytes:
    """Return a frame from which kio can read the message of this class at `at`: itself, or a copy without
    the tagged fields that the class does not know. InvalidFrame if there is no such message."""
    edits: list[Edit] = []
    try:
        end = _build_walk(cls)(frame, at, edits)
    except (IndexError, struct.error) as error:
        raise InvalidFrame(f"the frame ends too early: {error}") from error
    if end > len(frame):
        raise InvalidFrame(f"{end - len(frame)} bytes are missing")
    return _apply_edits(frame, edits) if edits else frame


def _apply_edits(frame: bytes, edits: list[Edit]) -> bytes:
    pieces, at = [], 0
    for start, stop, replacement in sorted(edits):  # no two overlap: a section's count, sizes and fields
        pieces += [frame[at:start], replacement]
        at = stop
    return b"".join((*pieces, frame[at:]))


@cache
def _build_walk(cls: Any) -> Walk:
    flexible = bool(cls.__flexible__)
    steps: list[int | Walk] = []  # a number of bytes, or a walk
    tags: dict[int, Walk] = {}
    for field in fields(cls):
        step = _build_step(field, flexible)
        if "tag" in field.metadata:
            tags[field.metadata["tag"]] = _join_walks([step])
        elif isinstance(step, int) and steps and isinstance(steps[-1], int):
            steps[-1] += step
        else:
            steps.append(step)
    if flexible:
        steps.append(_build_tagged_fields_walk(tags))
    return _join_walks(steps)


def _join_walks(steps: list[int | Walk]) -> Walk:
    walks = [_build_skip(step) if isinstance(step, int) else step for step in steps]
    if len(walks) == 1:
        return walks[0]

    def run(frame: bytes, at: int, edits: list[Edit]) -> int:
        for each in walks:
            at = each(frame, at, edits)
        return at

    return run


def _build_skip(size: int) -> Walk:
    return lambda frame, at, edits: at + size


def _build_step(field: Field[Any], flexible: bool) -> int | Walk:
    kind = _strip_optional(field.type)
    array = get_origin(kind) is tuple
    if array:
        kind = _strip_optional(get_args(kind)[0])
    if is_dataclass(kind):
        nested: Any = kind
        element: int | Walk = _build_walk(nested)
    else:
        name = field.metadata["kafka_type"]
        element = (
            _SIZES[name]
            if name in _SIZES
            else _build_bytes_walk(wide=name in {"bytes", "records"}, flexible=flexible)
        )
    return _build_array_walk(element, flexible) if array else element


def _strip_optional(kind: Any) -> Any:
    """The type inside an optional type; any other type unchanged."""
    given = [each for each in get_args(kind) if each is not type(None)]
    return given[0] if type(None) in get_args(kind) else kind


def _read_varint(frame: bytes, at: int) -> tuple[int, int]:
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
            raise InvalidFrame("no varint")
    return value, at + 1


def _build_bytes_walk(*, wide: bool, flexible: bool) -> Walk:
    """Walk a string or bytes: a length, then that many bytes."""
    def compact(frame: bytes, at: int, edits: list[Edit]) -> int:
        length, at = _read_varint(frame, at)
        return at + length - 1 if length else at

    number = _I32 if wide else _I16

    def plain(frame: bytes, at: int, edits: list[Edit]) -> int:
        length = number.unpack_from(frame, at)[0]
        if length < -1:
            raise InvalidFrame(f"a length of {length}")
        return int(at + number.size + max(length, 0))

    return compact if flexible else plain


def _build_array_walk(element: int | Walk, flexible: bool) -> Walk:
    """Walk an array: a count, then that many elements, each of at least one byte."""
    def run(frame: bytes, at: int, edits: list[Edit]) -> int:
        if flexible:
            count, at = _read_varint(frame, at)
            count -= 1
        else:
            count, at = _I32.unpack_from(frame, at)[0], at + 4
        if count < -1 or count > len(frame) - at:
            raise InvalidFrame(f"an array of {count} elements in {len(frame) - at} bytes")
        if isinstance(element, int):
            return at + element * max(count, 0)
        for _ in range(count):
            at = element(frame, at, edits)
        return at

    return run


def _build_tagged_fields_walk(tags: dict[int, Walk]) -> Walk:
    """Walk tagged fields: known ones must have the length they state, unknown ones are cut out."""
    def run(frame: bytes, at: int, edits: list[Edit]) -> int:
        if frame[at] == 0:
            return at + 1
        count_at = at
        count, at = _read_varint(frame, at)
        fields_at, unknown = at, 0
        for _ in range(count):
            field_at = at
            tag, size_at = _read_varint(frame, at)
            size, at = _read_varint(frame, size_at)
            if tag in tags:
                before = len(edits)
                if tags[tag](frame, at, edits) != at + size:
                    raise InvalidFrame(f"tagged field {tag} does not have the {size} bytes that it states")
                if len(edits) > before:  # something was cut out of it
                    edits.append((size_at, at, write_varint(size - _bytes_saved(edits[before:]))))
            else:
                unknown += 1
                edits.append((field_at, at + size, b""))
            at += size
            if at > len(frame):
                raise InvalidFrame(f"tagged field {tag} of {size} bytes ends beyond the frame")
        if unknown:
            edits.append((count_at, fields_at, write_varint(count - unknown)))
        return at

    return run


def _bytes_saved(edits: list[Edit]) -> int:
    """By how many bytes the edits shorten a frame."""
    return sum(stop - start - len(replacement) for start, stop, replacement in edits)


def write_varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
