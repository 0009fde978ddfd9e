"""The meaning of a live Apache Kafka's produce responses, row by row.

The tests check what the client of record makes of it (ok, fail, info; error, offset), and whether the record
is there afterwards. The second client, confluent-kafka and idempotent, hides everything but the ack.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from produce_answers import FIRST, SITUATIONS, VALUE, Answer, answers
from real_kafka import skip_without

from floodmark.harness.op import Type

pytestmark = [pytest.mark.kafka, pytest.mark.long]
OLD, NEW = "2.8.2", "4.3.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    type: Type
    error: str | None = None
    offset: int | None = None
    values: tuple[int, ...] = (FIRST,)  # in the topic afterwards


DEPOSED = "NOT_LEADER_OR_FOLLOWER"
HAS_IT = (FIRST, VALUE)
UNKNOWN_FATE: Mapping[str, Meant] = {
    "gone": Meant(type=Type.INFO, error=DEPOSED, offset=1),
    "kept": Meant(type=Type.INFO, error=DEPOSED, offset=1, values=HAS_IT),
}
BOTH: Mapping[str, Meant] = {
    "acked": Meant(type=Type.OK, offset=1, values=HAS_IT),
    "to a follower": Meant(type=Type.FAIL, error=DEPOSED),
    "to a stranger": Meant(type=Type.FAIL, error=DEPOSED),
    "to an unknown topic": Meant(type=Type.FAIL, error="UNKNOWN_TOPIC_OR_PARTITION"),
    "too large": Meant(type=Type.FAIL, error="MESSAGE_TOO_LARGE"),
    "deposed before anybody had it": UNKNOWN_FATE["gone"],
    "deposed by one that has it": UNKNOWN_FATE["kept"],
    "timed out": Meant(type=Type.INFO, error="REQUEST_TIMED_OUT", offset=1, values=HAS_IT),
    "session ended": UNKNOWN_FATE["gone"],
    "below min on arrival": Meant(type=Type.FAIL, error="NOT_ENOUGH_REPLICAS"),
    "leader killed": Meant(type=Type.INFO, error="CONNECTION"),
    "idempotent, acked": Meant(type=Type.OK, offset=1, values=HAS_IT),
    "idempotent, over an election": Meant(type=Type.OK, offset=2, values=(*HAS_IT, VALUE + 1)),
}
TABLE: Mapping[str, Mapping[str, Meant]] = {
    OLD: {
        **BOTH,
        "below min after the append": Meant(
            type=Type.INFO, error="NOT_ENOUGH_REPLICAS_AFTER_APPEND", offset=1, values=HAS_IT),
    },
    NEW: {  # since 3.7 the HW does not move below min.insync.replicas: only the time-out is answered
        **BOTH,
        "below min after the append": Meant(
            type=Type.INFO, error="REQUEST_TIMED_OUT", offset=1, values=HAS_IT),
    },
}
STOPPED = (  # "leader stopped", on both: it may be deposed before its sockets close
    UNKNOWN_FATE["gone"], Meant(type=Type.INFO, error="CONNECTION"))


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Answer | Exception]]:
    """version -> the outcome of each situation; filled when a version is needed."""
    return {}


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_it_means_what_the_client_of_record_makes_of_it(
        version: str, situation: str, seen: dict[str, dict[str, Answer | Exception]],
        tmp_path_factory: pytest.TempPathFactory) -> None:
    skip_without(version)
    if version not in seen:
        try:
            seen[version] = answers(tmp_path_factory.mktemp(f"kafka-{version}"), version)
        except Exception as error:  # once for all of them: no test starts the cluster again
            seen[version] = dict.fromkeys(SITUATIONS, error)
    answer, meant = seen[version][situation], TABLE[version].get(situation)
    if isinstance(answer, Exception):
        raise answer
    first = answer.outcome.sends[0]
    found = Meant(type=answer.outcome.type, error=answer.outcome.error, offset=first.offset,
                  values=answer.values)
    assert found == meant if meant is not None else found in STOPPED
