"""The broker's wire format: hand-written codecs give kio's bytes. Garbage: property/test_tagged_fields.py."""

import uuid

import pytest

from floodmark.broker.protocol.messages import EpochEnd
from floodmark.broker.server.api_versions import (
    OFFERED,
    SERVED_BY_CONTROLLER,
    answer_api_versions,
    is_served,
)
from floodmark.broker.wire import api_keys
from floodmark.broker.wire.api_keys import CREATE_TOPICS, FETCH, PRODUCE
from floodmark.broker.wire.codec import (
    WireError,
    error_code,
    make,
    milliseconds,
    read_request,
    read_request_header,
    read_response,
    request_parts,
    response_parts,
    write_request,
    write_response,
)
from floodmark.broker.wire.fast_codec import (
    FOLLOWER_FETCH_VERSION,
    FetchedPartition,
    FetchPartition,
    write_fetch_response,
    write_follower_fetch,
    write_produce_response,
)
from floodmark.broker.wire.frame_validation import write_varint

API_VERSIONS_3 = b"\0\x12\0\3\0\0\0\5\xff\xff\0\2x\2y\0"


def api_versions(frame: bytes = API_VERSIONS_3, offered: dict[int, tuple[int, int]] = OFFERED) -> bytes:
    """The answer's frame, without its size."""
    return answer_api_versions(frame, read_request_header(frame), offered)[4:]


TOPICS = ("t", "a-much-longer-name." * 12)


@pytest.mark.parametrize("version", range(3, 10))
def test_the_produce_answer_is_kios(version: int) -> None:
    """Several topics, errors, none at all; a name longer than a one-byte length."""
    start = 3 if version >= 5 else None  # as kio has it in older versions
    topics = [(TOPICS[0], [(0, 0, 2**40, start), (1, 19, -1, start)]), (TOPICS[1], [(7, 6, 5, start)])]
    for given in (topics, topics[:1], [(TOPICS[0], [])], []):
        frame = write_produce_response(version, 77, [
            (name, [(*part[:3], 3) for part in parts]) for name, parts in given])
        read = read_response(frame[4:], PRODUCE, version, 77)

        assert write_response(77, read) == frame
        assert [(topic.name, [
            (one.index, one.error_code, one.base_offset, getattr(one, "log_start_offset", None))
            for one in topic.partition_responses]) for topic in read.responses] == given


@pytest.mark.parametrize("version", [*range(4, 13), FOLLOWER_FETCH_VERSION])
def test_the_fetch_answer_is_kios(version: int) -> None:
    """With and without records, errors and a diverging epoch; lengths on both sides of one varint byte."""
    names = [uuid.UUID(int=n + 1).hex for n in range(2)] if version >= 13 else TOPICS
    diverging = EpochEnd(epoch=4, end_offset=99) if version >= 12 else None
    topics = [
        (names[0], [FetchedPartition(partition=0, error=0, hw=5, log_start=1, records=b"r" * 126),
                    FetchedPartition(partition=9, error=1, hw=-1, log_start=-1, records=b"")]),
        (names[1], [FetchedPartition(partition=3, error=0, hw=2**40, log_start=0, records=b"r" * 127,
                                     diverging=diverging)]),
    ]  # fmt: skip
    for given in (topics, topics[:1], []):
        frame = write_fetch_response(version, 7, given)
        read = read_response(frame[4:], FETCH, version, 7)

        assert write_response(7, read) == frame
        assert [topic.topic_id.hex if version >= 13 else topic.topic for topic in read.responses] == [
            name for name, _ in given]
        for topic, (_, parts) in zip(read.responses, given, strict=True):
            for one, meant in zip(topic.partitions, parts, strict=True):
                assert (one.partition_index, one.error_code, one.high_watermark, one.last_stable_offset,
                        one.records) == (meant.partition, meant.error, meant.hw, meant.hw, meant.records)
                assert one.aborted_transactions is None
                assert getattr(one, "log_start_offset", meant.log_start) == meant.log_start
                assert getattr(one, "preferred_read_replica", -1) == -1
                if version >= 12:
                    end = one.diverging_epoch
                    assert (end.epoch, end.end_offset) == ((4, 99) if meant.diverging else (-1, -1))


def test_the_followers_fetch_is_kios() -> None:
    """Two topics by id, and the follower in the tagged field of KIP-903."""
    topics = [(uuid.UUID(int=n).hex, [FetchPartition(
        partition=part, current_leader_epoch=3, offset=2**33, last_fetched_epoch=-1, log_start=1,
        max_bytes=1 << 20) for part in range(n)]) for n in (1, 2)]
    frame = write_follower_fetch(
        9, "broker-2", topics, replica=2, broker_epoch=17, max_wait_ms=500, min_bytes=1, max_bytes=2**20)
    read = read_request(frame[4:], read_request_header(frame[4:]))

    assert frame == write_request(FETCH, FOLLOWER_FETCH_VERSION, 9, "broker-2", read)
    assert (read.replica_state.replica_id, read.replica_state.replica_epoch) == (2, 17)
    assert (read.max_wait, read.min_bytes, read.max_bytes) == (milliseconds(500), 1, 2**20)
    assert (read.isolation_level, read.session_id, read.session_epoch) == (0, 0, -1)
    assert [(topic.topic_id.hex, [FetchPartition(
        partition=one.partition, current_leader_epoch=one.current_leader_epoch, offset=one.fetch_offset,
        last_fetched_epoch=one.last_fetched_epoch, log_start=one.log_start_offset,
        max_bytes=one.partition_max_bytes) for one in topic.partitions]) for topic in read.topics] == topics


@pytest.mark.parametrize(("size", "valid"), [(6, True), (5, False), (7, False)])
def test_a_known_tagged_field_must_have_its_stated_size(size: int, valid: bool) -> None:
    """Fetch 12's cluster id, "there", between two unknown tags."""
    cls, _ = request_parts(FETCH, 12)
    body = make(cls, replica_id=-1, max_wait=milliseconds(1), min_bytes=1, topics=(),
                forgotten_topics_data=(), cluster_id=None)  # fmt: skip
    plain = write_request(FETCH, 12, 1, "me", body)[4:]
    tags = (b"\3\0" + write_varint(size) + b"\6there" + write_varint(90) + b"\1x" + write_varint(300) + b"\0")
    frame = plain[:-1] + tags + b"behind"

    if valid:
        assert read_request(frame, read_request_header(frame)).cluster_id == "there"
    else:
        with pytest.raises(WireError, match="tagged field"):
            read_request(frame, read_request_header(frame))


def test_an_answer_to_another_request_is_refused() -> None:
    """Correlation ids are compared."""
    frame = api_versions()

    assert read_response(frame, api_keys.API_VERSIONS, 3, 5).api_keys
    with pytest.raises(WireError, match="another request"):
        read_response(frame, api_keys.API_VERSIONS, 3, 6)


def test_the_offered_api_versions() -> None:
    """Produce from 0 though 0-2 are refused (KAFKA-18659); Fetch 15 is served and not offered."""
    answer = read_response(api_versions(), api_keys.API_VERSIONS, 3, 5)
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    assert offered[PRODUCE] == (0, 9)
    assert offered[FETCH] == (4, 12)
    assert not is_served(PRODUCE, 2)
    assert is_served(PRODUCE, 3)
    assert is_served(FETCH, 15)
    assert not is_served(FETCH, 13)


@pytest.mark.parametrize("version", [-1, 4, 17])
def test_an_unknown_api_versions_is_answered_with_version_0_and_35(version: int) -> None:
    """KIP-511: with the full list, in the version that every client can read, whatever its body is."""
    frame = b"\0\x12" + version.to_bytes(2, signed=True) + b"\0\0\0\1\xff\xff\x99"
    answer = read_response(api_versions(frame, SERVED_BY_CONTROLLER), api_keys.API_VERSIONS, 0, 1)

    assert int(answer.error_code) == 35
    assert {each.api_key for each in answer.api_keys} == set(SERVED_BY_CONTROLLER)


def test_an_error_message_that_quotes_a_long_name_can_be_written_in_every_version() -> None:
    """A string of the versions that are not flexible has 32,767 bytes at most."""
    for version in (4, 7):
        cls, parts = response_parts(CREATE_TOPICS, version)
        topic = make(parts.CreatableTopicResult, name="t", topic_id=None, error_code=error_code(17),
                     error_message=repr("\0" * 30_000), configs=())
        frame = write_response(1, make(cls, throttle_time=milliseconds(0), topics=(topic,)))

        assert read_response(frame[4:], CREATE_TOPICS, version, 1).topics[0].error_message[:3] == "'\\x"
