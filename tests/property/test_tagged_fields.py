"""Newer clients than ours: unknown tagged fields, and bytes after the last field, change nothing.

The tests have their own writer. Without unknown tags it writes what kio writes, byte for byte.
"""

import contextlib
import datetime
import io
import struct
import uuid
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from random import Random
from typing import Any, get_args, get_origin

import pytest
from how_many import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_writer
from raw import batch

from floodmark.broker.server.api_versions import OFFERED, SERVED_BY_CONTROLLER, is_served
from floodmark.broker.wire.codec import WireError, read_request, read_request_header

REQUESTS = sorted({(1, 15)} | {
    (key, version) for served in (OFFERED, SERVED_BY_CONTROLLER) for key, (low, high) in served.items()
    for version in range(low, high + 1) if served is SERVED_BY_CONTROLLER or is_served(key, version)})
FLEXIBLE = [(key, version) for key, version in REQUESTS if load_request_schema(key, version).__flexible__]
NUMBERS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q"}
Tagger = Callable[[], list[tuple[int, bytes]]]


def unsigned(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def bare(kind: Any) -> Any:
    """The inner type of an optional one."""
    kinds = [each for each in get_args(kind) if each is not type(None)]
    return kinds[0] if type(None) in get_args(kind) else kind


# -- a random request ---------------------------------------------------------------------------------------


def some(cls: Any, random: Random) -> Any:
    return cls(**{field.name: some_field(field, random) for field in fields(cls)})


def some_field(field: Field[Any], random: Random) -> Any:
    kind = bare(field.type)
    if type(None) in get_args(field.type) and random.random() < 0.2:
        return None
    if "tag" in field.metadata and random.random() < 0.3:
        return field.default
    if get_origin(kind) is tuple:
        element = bare(get_args(kind)[0])
        return tuple(some_one(element, field, random) for _ in range(random.choice((0, 1, 1, 2, 3))))
    return some_one(kind, field, random)


def some_one(kind: Any, field: Field[Any], random: Random) -> Any:
    if is_dataclass(kind):
        return some(kind, random)
    name = field.metadata["kafka_type"]
    if name in NUMBERS:
        values = 1 << 8 * struct.calcsize(NUMBERS[name])
        return random.randrange(values) - (values // 2 if name[0] == "i" else 0)
    if name in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=random.randrange(1 << 31))
    if name == "bool":
        return random.random() < 0.5
    if name == "uuid":
        return uuid.UUID(int=random.randrange(1, 1 << 128))
    if name == "string":
        return "é" * random.choice((0, 1, 5, 63, 64, 200))
    assert name in ("bytes", "records"), name
    return batch(b"v" * random.choice((1, 20)))


# -- its bytes, with whatever tags `tagger` gives each section ---------------------------------------------


def written(value: Any, tagger: Tagger) -> bytes:
    """A flexible message."""
    known = []
    out = b""
    for field in fields(value):
        data = field_bytes(getattr(value, field.name), field, tagger)
        if "tag" not in field.metadata:
            out += data
        elif field.default is MISSING or getattr(value, field.name) != field.default:
            known.append((field.metadata["tag"], data))
    tags = sorted([*known, *tagger()])
    return out + unsigned(len(tags)) + b"".join(
        unsigned(tag) + unsigned(len(data)) + data for tag, data in tags)


def field_bytes(value: Any, field: Field[Any], tagger: Tagger) -> bytes:
    if get_origin(bare(field.type)) is tuple:
        if value is None:
            return b"\0"
        return unsigned(len(value) + 1) + b"".join(one_bytes(each, field, tagger) for each in value)
    return one_bytes(value, field, tagger)


def one_bytes(value: Any, field: Field[Any], tagger: Tagger) -> bytes:
    if is_dataclass(value):
        return written(value, tagger)
    name = field.metadata["kafka_type"]
    if name in NUMBERS:
        return struct.pack(NUMBERS[name], value)
    if name == "timedelta_i32":
        return struct.pack(">i", value // datetime.timedelta(milliseconds=1))
    if name == "bool":
        return bytes((value,))
    if name == "uuid":
        return bytes(16) if value is None else value.bytes
    if value is None:
        return b"\0"
    data = value.encode() if name == "string" else value
    return unsigned(len(data) + 1) + data


def frame_of(key: int, version: int, tags: list[tuple[int, bytes]], body: bytes) -> bytes:
    section = unsigned(len(tags)) + b"".join(unsigned(tag) + unsigned(len(data)) + data for tag, data in tags)
    return struct.pack(">hhih", key, version, 7, 2) + b"me" + section + body


def no_tags() -> list[tuple[int, bytes]]:
    return []


def strange(random: Random) -> Tagger:
    """Adds some tags to every section: none of Kafka's requests has a tag of 100 or more."""
    def tags() -> list[tuple[int, bytes]]:
        numbers = random.sample((100, 127, 128, 300, 2**31 - 1), random.choice((1, 1, 2, 5)))
        return [(tag, random.randbytes(random.choice((0, 1, 3, 127, 128, 300)))) for tag in sorted(numbers)]

    return tags


@settings(max_examples=cases(300, few=100))
@given(st.sampled_from(FLEXIBLE), st.integers(0, 2**32))
def test_strange_tags_and_trailing_bytes_are_skipped(which: tuple[int, int], seed: int) -> None:
    """In every section, the header's too: the request is read as without them."""
    key, version = which
    random = Random(seed)
    value = some(load_request_schema(key, version), random)
    kios = io.BytesIO()
    entity_writer(type(value))(kios, value)
    assert written(value, no_tags) == kios.getvalue()

    tagger = strange(random)
    frame = frame_of(key, version, tagger(), written(value, tagger)) + random.randbytes(random.randrange(4))

    assert read_request(frame, read_request_header(frame)) == value


@pytest.mark.parametrize(("key", "version"), REQUESTS)
def test_every_request_may_have_bytes_behind_it(key: int, version: int) -> None:
    """librdkafka 2.16 sends such a Metadata 9. Also in versions without tags."""
    value = some(load_request_schema(key, version), Random(version))
    body = io.BytesIO()
    entity_writer(type(value))(body, value)
    tagged = load_request_schema(key, version).__header_schema__.__version__ >= 2
    head = struct.pack(">hhih", key, version, 7, -1) + (b"\0" if tagged else b"")

    for behind in (b"", b"\0", b"\xff" * 9):
        frame = head + body.getvalue() + behind
        assert read_request(frame, read_request_header(frame)) == value


@settings(max_examples=cases(300, few=100))
@given(st.sampled_from(FLEXIBLE), st.integers(0, 2**32), st.data())
def test_a_request_cut_short_is_a_wire_error(which: tuple[int, int], seed: int, data: st.DataObject) -> None:
    """Wherever it ends, with unknown tags or not: never a request, and no error but a WireError."""
    key, version = which
    random = Random(seed)
    tagger = strange(random)
    value = some(load_request_schema(key, version), random)
    frame = frame_of(key, version, tagger(), written(value, tagger))
    cut = frame[: data.draw(st.integers(0, len(frame) - 1))]

    with pytest.raises(WireError):
        read_request(cut, read_request_header(cut))


@settings(max_examples=cases(500, few=150))
@given(st.sampled_from(FLEXIBLE), st.integers(0, 2**32))
def test_a_damaged_request_ends_no_process(which: tuple[int, int], seed: int) -> None:
    """Bytes changed at random, also counts and lengths: a WireError, or some request."""
    key, version = which
    random = Random(seed)
    tagger = strange(random)
    body = bytearray(written(some(load_request_schema(key, version), random), tagger))
    for _ in range(random.randrange(1, 4)):
        body[random.randrange(len(body))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    frame = frame_of(key, version, tagger(), bytes(body))

    with contextlib.suppress(WireError):
        read_request(frame, read_request_header(frame))
