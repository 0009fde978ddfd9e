"""The broker's control socket: which peers it accepts."""

import asyncio
import json
import socket

import pytest

from floodmark.broker.server.config import ConfigError, parse_config
from floodmark.broker.testing.control_socket import ControlSocket
from floodmark.broker.testing.failpoints import Failpoints
from floodmark.harness.cluster.ports import Ports

PROPERTIES = (
    "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://h:1\nlog.dirs=/d\n"
    "controller.quorum.voters=100@h:2\nfloodmark.control=127.0.0.1:3\n"
)


def request_state(port: int, source: str) -> bytes:
    """The answer to `state`; b"" if the broker closes the connection."""
    with socket.create_connection(("127.0.0.1", port), 20, source_address=(source, 0)) as connection:
        try:
            connection.sendall(b'{"id":1,"do":"state"}\n')
            return connection.makefile("rb").readline()
        except ConnectionError:
            return b""


def test_a_peer_that_is_not_listed_is_disconnected(capsys: pytest.CaptureFixture[str]) -> None:
    """And the log reports it; listed peers are answered, and without a list every peer."""
    ports = Ports()

    async def answers_to_each_peer() -> list[bytes]:
        restricted, open_to_all = ports.choose(), ports.choose()
        controls = [ControlSocket(lambda: {"node": 1}, {}, Failpoints()) for _ in range(2)]
        controls[0].open(("127.0.0.1", restricted), ("127.0.0.2", "127.0.0.3"))
        controls[1].open(("127.0.0.1", open_to_all))
        try:
            return [
                await asyncio.to_thread(request_state, port, host)
                for port, host in [
                    *((restricted, f"127.0.0.{number}") for number in (1, 2, 3)), (open_to_all, "127.0.0.1")
                ]
            ]  # fmt: skip
        finally:
            for control in controls:
                control.close()

    try:
        refused, *accepted = asyncio.run(answers_to_each_peer())
    finally:
        ports.close()
    assert refused == b""
    assert [json.loads(line) for line in accepted] == [{"id": 1, "ok": {"node": 1}}] * 3
    assert capsys.readouterr().out.count("control-refused peer=127.0.0.1:") == 1


def test_only_ip_addresses_may_be_listed() -> None:
    config, _ = parse_config(PROPERTIES + "floodmark.control.from=198.19.7.1, ::1\n", "f")

    assert config.control_from == ("198.19.7.1", "::1")
    with pytest.raises(ConfigError, match=r"f:7: floodmark\.control\.from: IP addresses are wanted"):
        parse_config(PROPERTIES + "floodmark.control.from=gateway\n", "f")
