"""Newer clients than ours: unknown tagged fields, and bytes after the last field, change nothing.

Each section that kio writes gets more tags; kio itself writes none that it does not know.
"""

import contextlib
import datetime
import io
import struct
import uuid
from dataclasses import Field, fields, is_dataclass
from random import Random
from types import SimpleNamespace
from typing import Any, get_args, get_origin
from unittest.mock import patch

import pytest
from how_many import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import _serialize, entity_writer
from raw import batch

from floodmark.broker.server.api_versions import OFFERED, SERVED_BY_CONTROLLER, is_served
from floodmark.broker.wire.codec import WireError, read_request, read_request_header

REQUESTS = sorted({(1, 15)} | {
    (key, version) for served in (OFFERED, SERVED_BY_CONTROLLER) for key, (low, high) in served.items()
    for version in range(low, high + 1) if served is SERVED_BY_CONTROLLER or is_served(key, version)})
FLEXIBLE = [(key, version) for key, version in REQUESTS if load_request_schema(key, version).__flexible__]
NUMBERS = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "int64": ">q"}


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


# -- its bytes, with strange tags in each section -----------------------------------------------------------


def encoded(value: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(value))(out, value)
    return out.getvalue()


def tagged(value: Any, random: Random) -> bytes:
    """As kio writes it, and every section has some more tags: none of Kafka's requests has one of 100 or
    more."""
    more = b""

    class Tags(io.BytesIO):
        def getvalue(self) -> bytes:
            return super().getvalue() + more

    def write_count(out: io.BytesIO, known: int) -> None:
        nonlocal more
        count, more = strange(random)
        out.write(unsigned(known + count))

    with patch.multiple(_serialize, io=SimpleNamespace(BytesIO=Tags), write_unsigned_varint=write_count):
        return encoded(value)


def strange(random: Random) -> tuple[int, bytes]:
    """How many tags, and their bytes."""
    numbers = sorted(random.sample((100, 127, 128, 300, 2**31 - 1), random.choice((1, 1, 2, 5))))
    tags = [(number, random.randbytes(random.choice((0, 1, 3, 127, 128, 300)))) for number in numbers]
    return len(tags), b"".join(unsigned(number) + unsigned(len(data)) + data for number, data in tags)


def frame_of(key: int, version: int, body: bytes, random: Random) -> bytes:
    count, tags = strange(random)
    return struct.pack(">hhih", key, version, 7, 2) + b"me" + unsigned(count) + tags + body


@settings(max_examples=cases(300, few=100))
@given(st.sampled_from(FLEXIBLE), st.integers(0, 2**32))
def test_strange_tags_and_trailing_bytes_are_skipped(which: tuple[int, int], seed: int) -> None:
    """In every section, the header's too: the request is read as without them."""
    key, version = which
    random = Random(seed)
    value = some(load_request_schema(key, version), random)
    frame = frame_of(key, version, tagged(value, random), random) + random.randbytes(random.randrange(4))

    assert read_request(frame, read_request_header(frame)) == value


@pytest.mark.parametrize(("key", "version"), REQUESTS)
def test_every_request_may_have_bytes_behind_it(key: int, version: int) -> None:
    """librdkafka 2.16 sends such a Metadata 9. Also in versions without tags."""
    value = some(load_request_schema(key, version), Random(version))
    has_tags = load_request_schema(key, version).__header_schema__.__version__ >= 2
    head = struct.pack(">hhih", key, version, 7, -1) + (b"\0" if has_tags else b"")

    for behind in (b"", b"\0", b"\xff" * 9):
        frame = head + encoded(value) + behind
        assert read_request(frame, read_request_header(frame)) == value


@settings(max_examples=cases(300, few=100))
@given(st.sampled_from(FLEXIBLE), st.integers(0, 2**32), st.data())
def test_a_request_cut_short_is_a_wire_error(which: tuple[int, int], seed: int, data: st.DataObject) -> None:
    """Wherever it ends, with unknown tags or not: never a request, and no error but a WireError."""
    key, version = which
    random = Random(seed)
    value = some(load_request_schema(key, version), random)
    frame = frame_of(key, version, tagged(value, random), random)
    cut = frame[: data.draw(st.integers(0, len(frame) - 1))]

    with pytest.raises(WireError):
        read_request(cut, read_request_header(cut))


@settings(max_examples=cases(500, few=150))
@given(st.sampled_from(FLEXIBLE), st.integers(0, 2**32))
def test_a_damaged_request_ends_no_process(which: tuple[int, int], seed: int) -> None:
    """Bytes changed at random, also counts and lengths: a WireError, or some request."""
    key, version = which
    random = Random(seed)
    body = bytearray(tagged(some(load_request_schema(key, version), random), random))
    for _ in range(random.randrange(1, 4)):
        body[random.randrange(len(body))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
    frame = frame_of(key, version, bytes(body), random)

    with contextlib.suppress(WireError):
        read_request(frame, read_request_header(frame))
