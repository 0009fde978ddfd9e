"""Encodes and decodes Kafka's requests and responses: frames and headers here, message bodies by kio.

Rules
1. Bytes that cannot be read raise WireError, whatever kio raised: the server closes that connection, and
   nothing else happens.
2. Every frame is walked before kio reads it (broker.wire.frame_validation): its native parser aborts the
   process on some garbage.
3. `make` drops a field that a version lacks, so that one handler serves all versions of its API.
4. As in Kafka, unknown tagged fields are skipped, in headers and in bodies (KIP-482), and so are bytes
   after the last field.
"""

import datetime
import io
import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any, get_args

import msgspec
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from floodmark.broker.wire.frame_validation import InvalidFrame, make_readable

Reader = Callable[[bytes, int], tuple[Any, int]]

_MESSAGE_MAX = 1_000  # of an error, in characters
_HEAD = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
_SIZE = struct.Struct(">i")
_SIZE_AND_CORRELATION = struct.Struct(">ii")


class WireError(Exception):
    """The bytes are no request or response."""


class RequestHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The fixed part of a request header, and the position after it."""

    key: int
    version: int
    correlation: int
    client: str | None
    body_at: int


def read_request_header(frame: bytes) -> RequestHeader:
    """The header v1 of a request frame (without its size). A header v2 adds only tagged fields:
    `skip_tagged_fields`."""
    try:
        key, version, correlation, length = _HEAD.unpack_from(frame, 0)
        end = _HEAD.size + max(length, 0)
        if length < -1 or end > len(frame):
            raise WireError("the client id ends beyond the frame")
        client = frame[_HEAD.size : end].decode() if length >= 0 else None
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"no request header: {error}") from error
    return RequestHeader(key=key, version=version, correlation=correlation, client=client, body_at=end)


def read_varint(frame: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint and the position after it."""
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(frame):
            break
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise WireError("no varint")


def skip_tagged_fields(frame: bytes, at: int) -> int:
    """The position after a section of tagged fields."""
    count, at = read_varint(frame, at)
    for _ in range(count):
        _, at = read_varint(frame, at)
        size, at = read_varint(frame, at)
        at += size
        if at > len(frame):
            raise WireError("a tagged field ends beyond the frame")
    return at


@cache
def _find_request_reader(key: int, version: int) -> tuple[Any, Reader, bool]:
    schema = load_request_schema(key, version)
    return schema, entity_reader(schema), schema.__header_schema__.__version__ >= 2


@cache
def _find_response_reader(key: int, version: int) -> tuple[Any, Reader, bool]:
    schema = load_response_schema(key, version)
    return schema, entity_reader(schema), schema.__header_schema__.__version__ >= 1


def prepare(key: int, version: int) -> None:
    """Import and build what reads and writes these requests and responses, before the first of them."""
    for schema, _, _ in (_find_request_reader(key, version), _find_response_reader(key, version)):
        _find_writer(schema)


def read_request(frame: bytes, head: RequestHeader) -> Any:
    """The body of a request of a version that is served: kio's value for it."""
    schema, reader, tagged = _find_request_reader(head.key, head.version)
    at = skip_tagged_fields(frame, head.body_at) if tagged else head.body_at
    return _decode(schema, reader, frame, at)


def read_response(frame: bytes, key: int, version: int, correlation: int) -> Any:
    """The body of the response to the request with this correlation id."""
    schema, reader, tagged = _find_response_reader(key, version)
    if len(frame) < 4 or _SIZE.unpack_from(frame)[0] != correlation:
        raise WireError("an answer to another request")
    at = skip_tagged_fields(frame, 4) if tagged else 4
    return _decode(schema, reader, frame, at)


def _decode(schema: Any, reader: Reader, frame: bytes, at: int) -> Any:
    try:
        frame = make_readable(schema, frame, at)
    except InvalidFrame as error:
        raise WireError(f"unreadable: {error}") from error
    try:
        return reader(frame, at)[0]
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # kio raises whatever its parsers raise, also a panic of its native part
        raise WireError(f"unreadable: {type(error).__name__}: {error}") from error


# -- writing ------------------------------------------------------------------------------------------


@cache
def _field_names(cls: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(cls))


def make(cls: Any, **values: Any) -> Any:
    """An instance of a kio class, leaving out what this version of it does not have. An error's message may
    quote what a client sent, and older versions cannot write a long one."""
    known = _field_names(cls)
    if message := values.get("error_message"):
        values["error_message"] = message[:_MESSAGE_MAX]
    return cls(**{name: value for name, value in values.items() if name in known})


def convert_version(value: Any, cls: Any) -> Any:
    """Copy a message into another version of it: fields by their names, at every depth."""
    return cls(
        **{
            field.name: _convert_value(getattr(value, field.name), field.type)
            for field in fields(cls)
            if hasattr(value, field.name)
        }
    )


def _convert_value(value: Any, kind: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_convert_value(each, kind) for each in value)
    return convert_version(value, _nested_class(kind)) if is_dataclass(value) else value


@cache
def _nested_class(kind: Any) -> Any:
    """The class of the nested message in a field's type, which may be optional or an array."""
    return kind if is_dataclass(kind) else next(filter(None, map(_nested_class, get_args(kind))), None)


class NestedClasses:
    """The nested classes of one message by their names: `parts.TopicProduceResponse`, for `make`."""

    def __init__(self, module: str) -> None:
        self._module = import_module(module)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if not is_dataclass(found):
            raise AttributeError(name)
        return found


@cache
def request_parts(key: int, version: int) -> tuple[Any, NestedClasses]:
    """A request's class and its nested classes."""
    schema = load_request_schema(key, version)
    return schema, NestedClasses(schema.__module__)


@cache
def response_parts(key: int, version: int) -> tuple[Any, NestedClasses]:
    """A response's class and its nested classes."""
    schema = load_response_schema(key, version)
    return schema, NestedClasses(schema.__module__)


_WRITERS: dict[Any, tuple[Callable[[Any, Any], None], int]] = {}


def _find_writer(cls: Any) -> tuple[Callable[[Any, Any], None], int]:
    if cls not in _WRITERS:
        _WRITERS[cls] = entity_writer(cls), int(cls.__header_schema__.__version__)
    return _WRITERS[cls]


def write_request(key: int, version: int, correlation: int, client: str, body: Any) -> bytes:
    """Encode a request: the whole frame, its size first."""
    writer, header_version = _find_writer(type(body))
    buffer = io.BytesIO()
    writer(buffer, body)
    return frame_request(key, version, correlation, client, buffer.getvalue(), tagged=header_version >= 2)


def frame_request(
    key: int, version: int, correlation: int, client: str, body: bytes, *, tagged: bool
) -> bytes:
    """Build the frame of a request whose body is already bytes."""
    name = client.encode()
    head = _HEAD.pack(key, version, correlation, len(name)) + name + (b"\0" if tagged else b"")
    return b"".join((_SIZE.pack(len(head) + len(body)), head, body))


def write_response(correlation: int, body: Any) -> bytes:
    """Encode a response: the whole frame, its size first."""
    writer, header_version = _find_writer(type(body))
    buffer = io.BytesIO()
    writer(buffer, body)
    return frame_response(correlation, header_version >= 1, buffer.getvalue())


def frame_response(correlation: int, tagged: bool, body: bytes) -> bytes:
    """Build the frame of a response whose body is already bytes."""
    head = b"\0" if tagged else b""
    return b"".join((_SIZE_AND_CORRELATION.pack(4 + len(head) + len(body), correlation), head, body))


def error_code(code: int) -> Any:
    """kio's value for an error code; UNKNOWN_SERVER_ERROR for one that kio does not know."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.unknown_server_error


def milliseconds(value: int) -> Any:
    """A duration as kio represents it."""
    return datetime.timedelta(milliseconds=value)


NO_THROTTLE_TIME = milliseconds(0)
