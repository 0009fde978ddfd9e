"""The broker's properties file, its meaning, and the errors for one that has none; the keys that may be set,
by the harness's table and the broker's own program; whom its control socket serves."""

import asyncio
import json
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from golden_text import refused_as_written

from floodmark.broker import check_config
from floodmark.broker.check_config import find_problem
from floodmark.broker.server import config as broker_config
from floodmark.broker.server.config import ConfigError, load_config, parse_config
from floodmark.broker.testing.control_socket import ControlSocket
from floodmark.broker.testing.failpoints import Failpoints
from floodmark.harness import catalog
from floodmark.harness.broker_config import (
    INT_MAX,
    KEYS,
    LONG_MAX,
    SET_BY_CLUSTER,
    TOPIC_KEYS,
    checked,
    why_not,
)
from floodmark.harness.cluster.layout import Ports
from floodmark.harness.commands import broker_questions
from floodmark.harness.commands.broker_questions import refuse_config, refuse_configs, scenario_words
from floodmark.harness.commands.run import own_commit
from floodmark.harness.commands.scenario import Part, parts_that_fit
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import Cluster
from floodmark.harness.spec import RULES
from floodmark.nemesis.scenario import shipped

BROKER = """
process.roles=broker
node.id=1
listeners=PLAINTEXT://127.0.0.1:19101
controller.quorum.voters=100@127.0.0.1:19300
log.dirs=/somewhere/n1
"""
TRIED = ("-1", "0", "1", "2", "100", str(INT_MAX), str(INT_MAX + 1), str(LONG_MAX), str(LONG_MAX + 1), "true",
         "FALSE", "yes", "soon", "two-phase", "", "1.5", "0x10", "5\nlog.dirs=/elsewhere", "1\nlisteners=x:1")


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


# -- the keys that may be set ------------------------------------------------------------------------------


def test_both_tables_have_the_same_keys() -> None:
    """Keys that may be set and keys set by the cluster are all that a broker knows."""
    assert KEYS.keys() | SET_BY_CLUSTER == broker_config._KEYS.keys()
    assert not KEYS.keys() & SET_BY_CLUSTER
    assert set(TOPIC_KEYS.values()) <= KEYS.keys()


@pytest.mark.parametrize("key", sorted(KEYS))
def test_the_harness_accepts_a_value_exactly_if_the_broker_does(key: str) -> None:
    """Single values: types and ranges. Only the broker itself knows which switches exist."""
    parse = broker_config._KEYS[key][1]
    for value in TRIED:
        try:
            parse(value)
            accepted = key != "floodmark.switches" or "\n" not in value
        except ValueError:
            accepted = False
        assert (why_not(key, value) is None) == accepted, (key, value, why_not(key, value))


def test_a_bad_key_or_value_is_refused_with_the_valid_ones(request: pytest.FixtureRequest) -> None:
    refused_as_written("-c", checked, UsageError, request)


def test_a_topic_key_is_passed_under_the_brokers_name() -> None:
    assert checked({"flush.messages": "1", "min.insync.replicas": "2"}) == {
        "log.flush.interval.messages": "1", "min.insync.replicas": "2"}


def test_the_broker_reports_values_that_contradict_each_other() -> None:
    """As at its start; a near miss is accepted."""
    wait = "replica.fetch.wait.max.ms=500"
    assert check_config.find_problem([wait, "replica.lag.time.max.ms=499"]) == (
        "replica.fetch.wait.max.ms (500) may not be above replica.lag.time.max.ms (499)")
    assert check_config.find_problem([wait, "replica.lag.time.max.ms=500"]) is None
    assert "no bug 'no-such'" in str(check_config.find_problem(["floodmark.bugs=no-such"]))
    assert "no switch 'no-such'" in str(check_config.find_problem(["floodmark.switches=no-such"]))
    assert check_config.find_problem(["no.such.key=1"]) == "unknown key no.such.key"


# -- asked of the broker's own program: all rows' settings in one process --------------------------------


WAIT = "replica.fetch.wait.max.ms"
LAG = "replica.lag.time.max.ms"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The argv of each process that is run from here on; nothing has been asked yet."""
    calls: list[list[str]] = []
    real = subprocess.run

    def run(argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        calls.append(list(argv))
        return real(argv, **options)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(broker_questions, "_refusals", {})
    return calls


def cluster(folder: Path, place: str = "local", **config: str) -> Cluster:
    return catalog.cluster(place, folder, 3, rules=RULES[-1], bugs=(), links="direct", config={
        key.replace("_", "."): value for key, value in config.items()})


def test_many_clusters_are_asked_about_in_one_process(tmp_path: Path, asked: list[list[str]]) -> None:
    """Each has its own answer, whatever the order; and no further process is started for them."""
    fit = [cluster(tmp_path / f"fit-{lag}", replica_lag_time_max_ms=lag) for lag in ("600", "700")]
    slow = cluster(tmp_path / "slow", replica_fetch_wait_max_ms="500", replica_lag_time_max_ms="499")
    slower = cluster(tmp_path / "slower", replica_fetch_wait_max_ms="600", replica_lag_time_max_ms="499")
    with pytest.raises(UsageError, match=r"^the slow one: no broker would start .*500"):
        refuse_configs([("the first", fit[0]), ("the slow one", slow), ("", fit[1]), ("the slower", slower)])
    assert len(asked) == 1
    for one in fit:
        refuse_config(one)
    for one, wait in ((slow, "500"), (slower, "600")):
        with pytest.raises(UsageError) as refused:
            refuse_config(one)
        why = find_problem([f"{WAIT}={wait}", f"{LAG}=499"])
        assert why is not None
        assert wait in why
        assert str(refused.value) == f"no broker would start with these settings: {why}"
    refuse_configs([("", one) for one in fit])
    assert len(asked) == 1


def test_a_simulated_cluster_is_asked_about_in_this_process(tmp_path: Path, asked: list[list[str]]) -> None:
    refuse_config(cluster(tmp_path / "fit", "simulated"))
    slow = cluster(tmp_path / "slow", "simulated", replica_fetch_wait_max_ms="500",
                   replica_lag_time_max_ms="499")
    with pytest.raises(UsageError, match=r"^no broker would start with these settings: .*500"):
        refuse_config(slow)
    assert asked == []


def test_all_rows_are_asked_about_in_one_process(tmp_path: Path, asked: list[list[str]]) -> None:
    scenarios = shipped(scenario_words())
    every = [Part(scenario=scenario, row=row) for scenario in scenarios for row in scenario.rows]
    asked.clear()
    own_commit()
    asked.clear()
    fit = parts_that_fit(every, "local", tmp_path)
    assert len(fit) > 100
    assert [argv[3] for argv in asked] == [catalog.BROKER_CHECK]


def test_a_broker_that_does_not_answer_is_no_refusal(
        tmp_path: Path, asked: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "BROKER_CHECK", "floodmark.broker.no_such_program")
    with pytest.raises(FloodmarkError, match="no_such_program") as error:
        refuse_config(cluster(tmp_path))
    assert "does not say whether it would start" in str(error.value)
    assert not isinstance(error.value, UsageError)
    assert len(asked) == 1


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
