"""Applications' own clients on `cluster up`: each of their ordinary calls works, or gets the right refusal at
once.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import client_calls
import pytest
from clients_confluent import Confluent, is_refused
from clients_kafka_python import KafkaPython
from cluster_up import Up, cluster_up
from real_kafka import skip_without

from floodmark.harness.commands import cluster

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with cluster_up(tmp_path_factory.mktemp("calls")) as running:
        yield running


@pytest.mark.parametrize("client", [Confluent, KafkaPython])
def test_each_call_has_its_answer_at_once(up: Up, client: Any) -> None:
    assert client_calls.wrong(client, up.bootstrap) == []


@pytest.mark.java
@pytest.mark.long
@pytest.mark.skipif(shutil.which("javac") is None, reason="no javac is installed")
def test_the_java_client(up: Up) -> None:
    """A client without librdkafka and without Python."""
    skip_without(client_calls.JAVA_CLIENT)
    assert client_calls.wrong_in_java(up.bootstrap) == []


def test_a_deleted_topic_is_not_shown(up: Up, capsys: pytest.CaptureFixture[str]) -> None:
    """`cluster state` has seen it before; another topic is still there."""
    def shown() -> set[str]:
        assert cluster.state(up.folder, as_json=True) == 0
        return {one["topic"] for one in json.loads(capsys.readouterr().out)["partitions"]}

    with closing(Confluent(up.bootstrap, "kept")) as kept, closing(Confluent(up.bootstrap, "gone")) as gone:
        kept.calls["create a topic"](kept)
        gone.calls["create a topic"](gone)
        assert shown() >= {"kept", "gone"}
        gone.calls["delete the topic"](gone)
    assert "kept" in shown()
    assert "gone" not in shown()


def test_what_is_refused_is_logged(up: Up) -> None:
    """Once for each client, in the log of the broker that refused it; and before that on the first screen."""
    with closing(Confluent(up.bootstrap, "refused")) as client:
        client.calls["create a topic"](client)
        for _ in range(4):  # each broker would coordinate: of three, one is asked twice
            assert is_refused(client, **{"client.id": "asked-once", "group.id": "one"})
    logs = [up.log(node) for node in ("n1", "n2", "n3")]
    screen = up.screen.read_text(encoding="utf-8")

    line = 'not-served asked="consumer groups" client=asked-once group=one'
    assert sum(log.count("client=asked-once") for log in logs) in (1, 2, 3)
    assert max(log.count(line) for log in logs) == 1
    assert "no consumer groups" in screen
    assert "no transactions" in screen
