"""The broker's properties file, its meaning, and the errors for one that has none; whom its control socket
serves."""

import asyncio
import json
import socket
from pathlib import Path

import pytest
from golden_text import refused_as_written

from floodmark.broker.server.config import LONG_MAX, ConfigError, load_config, parse_config
from floodmark.broker.testing.control_socket import ControlSocket
from floodmark.broker.testing.failpoints import Failpoints
from floodmark.harness.cluster.layout import Ports

BROKER = """
process.roles=broker
node.id=1
listeners=PLAINTEXT://127.0.0.1:19101
controller.quorum.voters=100@127.0.0.1:19300
log.dirs=/somewhere/n1
"""


def test_defaults_are_kafkas() -> None:
    """Keys that are not given have Kafka's defaults."""
    config, warnings = parse_config(BROKER, "f")

    assert warnings == []
    assert (config.role, config.node_id, config.log_dir) == ("broker", 1, Path("/somewhere/n1"))
    assert config.advertised == config.listen == ("127.0.0.1", 19101)
    assert (config.controller_id, config.controller) == (100, ("127.0.0.1", 19300))
    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (9000, 2000)
    assert (config.replica_lag_time_max_ms, config.fetch_wait_max_ms) == (30_000, 500)
    assert config.flush_messages == LONG_MAX
    assert config.rules == "kip-320"
    assert config.auto_create_topics
    assert not config.unclean_leader_election


def test_every_form_of_a_properties_line() -> None:
    """Comments, blanks, both separators, spaces, a continued line. An unknown key is only a warning with its
    line number; a key given twice likewise."""
    text = BROKER + "# no=1\n! nor=2\n  min.insync.replicas : 2\nfloodmark.bugs = trunc_hw, \\\n  no_leso\n"
    config, warnings = parse_config(f"{text}num.io.threads=2\nnode.id=3\n", "f")

    assert config.min_insync_replicas == 2
    assert config.bugs == ("trunc_hw", "no_leso")
    assert config.node_id == 3
    assert warnings == [
        "f:12: unknown key num.io.threads",
        "f:13: node.id was given before, on line 3; this one rules",
    ]


def test_a_bad_value_names_its_line(request: pytest.FixtureRequest) -> None:
    """File, line, key, and what was expected."""
    refused_as_written(
        "broker.properties", lambda line: parse_config(f"{BROKER}{line}\n", "f"), ConfigError, request)


def test_a_missing_key_or_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    """A controller's address is where it listens."""
    for key in ("process.roles", "node.id", "listeners", "log.dirs", "controller.quorum.voters"):
        text = "".join(line + "\n" for line in BROKER.splitlines() if not line.startswith(key))
        with pytest.raises(ConfigError, match=f"{key} is missing"):
            parse_config(text, "f")
    with pytest.raises(ConfigError, match=r"absent\.properties"):
        load_config(tmp_path / "absent.properties")
    text = "process.roles=controller\nnode.id=100\nlisteners=CONTROLLER://localhost:9\nlog.dirs=x\n"
    assert parse_config(text, "f")[0].controller == ("localhost", 9)


def test_an_override_wins_over_the_file() -> None:
    """One file for three brokers; an override gives no warning, unless its key is unknown. The last one wins.
    A link is dialled before what a node advertises."""
    config, warnings = parse_config(
        BROKER, "f", ["node.id=2", "log.dirs = /data", "floodmark.dial=1@n1:1,3@n3:1", "node.id=3", "no=2"])

    assert warnings == ["--override: unknown key no"]
    assert (config.node_id, config.log_dir) == (3, Path("/data"))
    assert config.address_to_dial(1, ("127.0.0.1", 19101)) == ("n1", 1)
    assert config.address_to_dial(2, ("127.0.0.1", 19102)) == ("127.0.0.1", 19102)


def test_an_error_in_an_override_names_the_override(request: pytest.FixtureRequest) -> None:
    """It is on no line of the file; an error in the file names its line all the same."""
    refused_as_written("--override", lambda one: parse_config(BROKER, "f", [one]), ConfigError, request)
    with pytest.raises(ConfigError, match=r"^f:7: "):
        parse_config(BROKER + "broker.session.timeout.ms=500\n", "f", ["num.partitions=2"])


# -- the control socket: which peers it accepts ----------------------------------------------------------


def request_state(port: int, source: str) -> bytes:
    """The answer to `state`; b"" if the broker closes the connection."""
    with socket.create_connection(("127.0.0.1", port), 20, source_address=(source, 0)) as connection:
        try:
            connection.sendall(b'{"id":1,"do":"state"}\n')
            return connection.makefile("rb").readline()
        except ConnectionError:
            return b""


async def test_a_peer_that_is_not_listed_is_disconnected(capsys: pytest.CaptureFixture[str]) -> None:
    """And the log reports it; listed peers are answered. (Without a list every peer is: local clusters.)"""
    ports = Ports()
    port = ports.choose()
    control = ControlSocket(lambda: {"node": 1}, {}, Failpoints())
    control.open(("127.0.0.1", port), ("127.0.0.2", "127.0.0.3"))
    try:
        refused, *answered = [await asyncio.to_thread(request_state, port, f"127.0.0.{number}")
                              for number in (1, 2, 3)]
    finally:
        control.close()
        ports.close()
    assert refused == b""
    assert [json.loads(line) for line in answered] == [{"id": 1, "ok": {"node": 1}}] * 2
    assert capsys.readouterr().out.count("control-refused peer=127.0.0.1:") == 1


def test_only_ip_addresses_may_be_listed() -> None:
    key = "floodmark.control=127.0.0.1:3\nfloodmark.control.from="
    assert parse_config(f"{BROKER}{key}198.19.7.1, ::1\n", "f")[0].control_from == ("198.19.7.1", "::1")
    with pytest.raises(ConfigError, match=r"f:8: floodmark\.control\.from: IP addresses are wanted"):
        parse_config(f"{BROKER}{key}gateway\n", "f")
