"""The broker's wire format: hand-written codecs give kio's bytes; garbage is a WireError and nothing else."""

import uuid
from random import Random
from typing import Any

import pytest

from floodmark.broker.protocol.messages import EpochEnd
from floodmark.broker.protocol.metadata import BrokerInfo, Metadata, PartitionInfo, TopicInfo
from floodmark.broker.server.api_versions import (
    OFFERED,
    SERVED_BY_CONTROLLER,
    is_served,
    write_api_versions_response,
)
from floodmark.broker.wire import api_keys, codec
from floodmark.broker.wire.api_keys import FETCH, PRODUCE
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
from floodmark.broker.wire.leader_and_isr_codec import (
    read_leader_and_isr,
    read_leader_and_isr_response,
    write_leader_and_isr,
    write_leader_and_isr_response,
)

TOPICS = ("t", "a-much-longer-name." * 12)


@pytest.mark.parametrize("version", range(3, 10))
def test_the_produce_answer_is_kios(version: int) -> None:
    """Several topics, errors, none at all; a name longer than a one-byte length."""
    random = Random(version)
    topics = [
        (
            name,
            [
                (part, random.choice([0, 6, 19]), random.randrange(-1, 2**40), random.randrange(99))
                for part in range(random.randrange(3))
            ],
        )
        for name in TOPICS
    ]
    cls, parts = response_parts(PRODUCE, version)

    for given in (topics, topics[:1], []):
        expected = make(
            cls,
            throttle_time=milliseconds(0),
            responses=tuple(
                make(
                    parts.TopicProduceResponse,
                    name=name,
                    partition_responses=tuple(
                        make(
                            parts.PartitionProduceResponse,
                            index=part,
                            error_code=error_code(error),
                            base_offset=base,
                            log_append_time=None,
                            log_start_offset=start,
                            record_errors=(),
                            error_message=None,
                        )
                        for part, error, base, start in each
                    ),
                )
                for name, each in given
            ),
        )
        assert write_response(77, expected) == write_produce_response(version, 77, given)


@pytest.mark.parametrize("version", [*range(4, 13), FOLLOWER_FETCH_VERSION])
def test_the_fetch_answer_is_kios(version: int) -> None:
    """With and without records, errors and a diverging epoch; lengths on both sides of one varint byte."""
    names = [uuid.UUID(int=n + 1).hex for n in range(2)] if version >= 13 else list(TOPICS)
    flexible = version >= 12
    topics = [
        (
            names[0],
            [
                FetchedPartition(partition=0, error=0, hw=5, log_start=1, records=b"r" * 126),
                FetchedPartition(partition=9, error=1, hw=-1, log_start=-1, records=b""),
            ],
        ),
        (
            names[1],
            [
                FetchedPartition(
                    partition=3,
                    error=0,
                    hw=2**40,
                    log_start=0,
                    records=b"r" * 127,
                    diverging=EpochEnd(epoch=4, end_offset=99) if flexible else None,
                )
            ],
        ),
    ]
    cls, parts = response_parts(FETCH, version)

    def partition(each: FetchedPartition) -> Any:
        diverging = {}
        if each.diverging is not None:
            diverging["diverging_epoch"] = parts.EpochEndOffset(epoch=4, end_offset=99)
        return make(
            parts.PartitionData,
            partition_index=each.partition,
            error_code=error_code(each.error),
            high_watermark=each.hw,
            last_stable_offset=each.hw,
            log_start_offset=each.log_start,
            aborted_transactions=None,
            preferred_read_replica=-1,
            records=each.records,
            **diverging,
        )

    for given in (topics, topics[:1], []):
        expected = make(
            cls,
            throttle_time=milliseconds(0),
            error_code=error_code(0),
            session_id=0,
            responses=tuple(
                make(
                    parts.FetchableTopicResponse,
                    topic=name,
                    topic_id=uuid.UUID(hex=name) if version >= 13 else None,
                    partitions=tuple(partition(each) for each in each_topic),
                )
                for name, each_topic in given
            ),
        )
        assert write_response(7, expected) == write_fetch_response(version, 7, given)


def test_the_followers_fetch_is_kios() -> None:
    """Two topics by id, and the follower in the tagged field of KIP-903."""
    topics = [
        (
            uuid.UUID(int=n).hex,
            [
                FetchPartition(
                    partition=part,
                    current_leader_epoch=3,
                    offset=2**33,
                    last_fetched_epoch=-1,
                    log_start=1,
                    max_bytes=1 << 20,
                )
                for part in range(n)
            ],
        )
        for n in (1, 2)
    ]
    cls, parts = request_parts(FETCH, FOLLOWER_FETCH_VERSION)
    body = make(
        cls,
        max_wait=milliseconds(500),
        min_bytes=1,
        max_bytes=2**20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        forgotten_topics_data=(),
        rack_id="",
        replica_state=parts.ReplicaState(replica_id=2, replica_epoch=17),
        topics=tuple(
            make(
                parts.FetchTopic,
                topic_id=uuid.UUID(hex=topic_id),
                partitions=tuple(
                    make(
                        parts.FetchPartition,
                        partition=each.partition,
                        current_leader_epoch=3,
                        fetch_offset=each.offset,
                        last_fetched_epoch=-1,
                        log_start_offset=1,
                        partition_max_bytes=1 << 20,
                    )
                    for each in requested
                ),
            )
            for topic_id, requested in topics
        ),
    )

    frame = write_follower_fetch(
        9, "broker-2", topics, replica=2, broker_epoch=17, max_wait_ms=500, min_bytes=1, max_bytes=2**20
    )

    assert frame == write_request(FETCH, FOLLOWER_FETCH_VERSION, 9, "broker-2", body)
    assert read_request(frame[4:], read_request_header(frame[4:])) == body


def test_unknown_tagged_fields_in_a_header_are_skipped() -> None:
    """KIP-482."""
    cls, _ = request_parts(api_keys.API_VERSIONS, 3)
    body = make(cls, client_software_name="new", client_software_version="9")
    frame = write_request(api_keys.API_VERSIONS, 3, 1, "me", body)[4:]
    head = read_request_header(frame)
    tagged = (
        frame[: head.body_at]
        + write_varint(1)
        + write_varint(300)
        + write_varint(2)
        + b"xx"
        + frame[head.body_at + 1 :]
    )

    assert read_request(tagged, head) == body


@pytest.mark.parametrize(("size", "valid"), [(6, True), (5, False), (7, False)])
def test_a_known_tagged_field_must_have_its_stated_size(size: int, valid: bool) -> None:
    """Fetch 12's cluster id, "there", between two unknown tags."""
    cls, _ = request_parts(FETCH, 12)
    body = make(
        cls, replica_id=-1, max_wait=milliseconds(1), min_bytes=1, topics=(), forgotten_topics_data=(),
        cluster_id=None,
    )  # fmt: skip
    plain = write_request(FETCH, 12, 1, "me", body)[4:]
    tags = (
        b"\3"
        + b"\0"
        + write_varint(size)
        + b"\6there"
        + write_varint(90)
        + b"\1x"
        + write_varint(300)
        + b"\0"
    )
    frame = plain[:-1] + tags + b"behind"

    if valid:
        assert read_request(frame, read_request_header(frame)).cluster_id == "there"
    else:
        with pytest.raises(WireError, match="tagged field"):
            read_request(frame, read_request_header(frame))


@pytest.mark.parametrize("damage", ["cut", "tag", "count", "empty", "client"])
def test_a_damaged_request_is_a_wire_error(damage: str) -> None:
    """Cut off, empty, or with a wrong tag, count or client id."""
    cls, _ = request_parts(api_keys.METADATA, 9)
    frame = write_request(
        api_keys.METADATA,
        9,
        1,
        "me",
        make(
            cls,
            topics=None,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        ),
    )[4:]
    damaged = {
        "cut": frame[:-2],
        "tag": frame[:-1] + b"\1\x63\2x",
        "count": frame[:-1] + b"\2\x63\1x",
        "empty": b"",
        "client": frame[:8] + b"\x7f\xff" + frame[10:],
    }[damage]

    with pytest.raises(WireError):
        read_request(damaged, read_request_header(damaged))


def test_random_bytes_are_a_wire_error_or_a_request() -> None:
    """No other exception, no crash, no hang: 20,000 random frames, half of them with a valid header."""
    random = Random(1)
    versions = [
        (key, version) for key, (low, high) in OFFERED.items() for version in range(max(low, 3), high + 1)
    ]
    versions = [(key, version) for key, version in versions if is_served(key, version)]
    for turn in range(20_000):
        frame = random.randbytes(random.randrange(60))
        if turn % 2:
            key, version = random.choice(versions)
            frame = key.to_bytes(2) + version.to_bytes(2) + b"\0\0\0\1\xff\xff\0" + frame
        try:
            head = read_request_header(frame)
            if is_served(head.key, head.version):
                read_request(frame, head)
        except WireError:
            continue


def test_an_answer_to_another_request_is_refused() -> None:
    """Correlation ids are compared."""
    frame = write_response(5, write_api_versions_response(3, OFFERED))[4:]

    assert read_response(frame, api_keys.API_VERSIONS, 3, 5).api_keys
    with pytest.raises(WireError, match="another request"):
        read_response(frame, api_keys.API_VERSIONS, 3, 6)


def test_the_offered_api_versions() -> None:
    """Produce from 0 though 0-2 are refused (KAFKA-18659); Fetch 15 is served and not offered."""
    answer = write_api_versions_response(3, OFFERED)
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    assert offered[PRODUCE] == (0, 9)
    assert offered[FETCH] == (4, 12)
    assert not is_served(PRODUCE, 2)
    assert is_served(PRODUCE, 3)
    assert is_served(FETCH, 15)
    assert not is_served(FETCH, 13)


def test_an_unknown_api_versions_is_answered_with_version_0_and_35() -> None:
    """KIP-511: with the full list, in the version that every client can read."""
    frame = write_response(1, write_api_versions_response(17, SERVED_BY_CONTROLLER))[4:]
    answer = read_response(frame, api_keys.API_VERSIONS, 0, 1)

    assert int(answer.error_code) == 35
    assert {each.api_key for each in answer.api_keys} == set(SERVED_BY_CONTROLLER)


def test_leader_and_isr_is_read_back_as_written() -> None:
    """Its response likewise."""
    metadata = Metadata(
        version=9,
        brokers=(BrokerInfo(id=1, epoch=15, host="127.0.0.1", port=19101, fenced=False),),
        topics={
            "log": TopicInfo(
                name="log",
                id="5f" * 16,
                configs={"min.insync.replicas": "2"},
                partitions=(
                    PartitionInfo(
                        partition=0,
                        leader=1,
                        leader_epoch=4,
                        isr=(1, 2),
                        partition_epoch=6,
                        replicas=(1, 2),
                    ),
                ),
            )
        },
    )
    frame = write_leader_and_isr(3, 2, 17, metadata)[4:]

    assert read_leader_and_isr(frame, read_request_header(frame)) == (2, 17, metadata)
    assert read_leader_and_isr_response(write_leader_and_isr_response(3, 77)[4:]) == 77


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"broker":2}',
        b'{"broker":2,"broker_epoch":1,"version":1,"brokers":[{}],"topics":[]}',
    ],
)
def test_a_damaged_leader_and_isr_is_a_wire_error(body: bytes) -> None:
    """Not JSON, or with missing fields."""
    key, version = api_keys.LEADER_AND_ISR, api_keys.LEADER_AND_ISR_VERSION
    frame = codec.frame_request(key, version, 1, "c", body, tagged=False)[4:]

    with pytest.raises(WireError):
        read_leader_and_isr(frame, read_request_header(frame))
