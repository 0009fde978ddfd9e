"""A user's own cluster, as far as none is needed: commands, clocks, addresses, client settings, logins."""

import asyncio
import json
import re
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from canned_broker import api_versions, encoded, served
from golden_text import GOLDEN, answered_as_written
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from looks import SPEC
from run_processes import state_of, wait_until

from floodmark.harness.client import codec
from floodmark.harness.client.codec import ClusterMetadata, PartitionMetadata
from floodmark.harness.client.security import Refused, Security, read_client_config
from floodmark.harness.cluster import broker_requests
from floodmark.harness.cluster.fault_commands import ACTS, FaultCommands, read_fault_commands
from floodmark.harness.cluster.own_cluster import (
    MS_NS,
    Ahead,
    Found,
    OwnCluster,
    Stamped,
    _latest,
    ahead,
    error_ns,
    joined,
)
from floodmark.harness.commands.run import addresses_of, planned_on_own
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import (
    Cuts,
    Elects,
    Kills,
    PartitionSpec,
    Pauses,
    ReadsLogs,
    ability,
    why_not,
)
from floodmark.harness.schedule.views import UNKNOWN
from floodmark.harness.spec import RunPlan, RunSpec

PASSWORD = "the-secret-of-the-house"
FOUND = Found(ids={"n1": 1, "n2": 2}, addresses={"n1": ("h1", 9092), "n2": ("h2", 9093)},
              settings=({}, {}))


# -- commands ---------------------------------------------------------------------------------------------

def run(commands: FaultCommands, act: str = "kill", **words: str) -> None:
    asyncio.run(commands.run("n1", act, words))


def test_a_command_runs_without_a_shell_and_other_braces_stay(tmp_path: Path) -> None:
    out = tmp_path / "out"
    argv = (sys.executable, "-c", "import sys; open(sys.argv[1], 'w').write('|'.join(sys.argv[2:]))",
            str(out), "{node} from {peer}", "$HOME; `id` {print $1}", "{host}")
    run(FaultCommands(of_nodes={"n1": {"kill": argv}}), peer="n2")

    assert out.read_text() == "n1 from n2|$HOME; `id` {print $1}|{host}"


def own(folder: Path, commands: FaultCommands) -> OwnCluster:
    return OwnCluster(FOUND, folder, prefix="p-", commands=commands, may_break=True)


async def interrupted(work: Coroutine[Any, Any, Any], begun: Path) -> None:
    """It is cancelled as soon as that file is there, and has ended."""
    running = asyncio.create_task(work)
    while not begun.exists():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_a_command_past_its_timeout_is_killed_with_its_children(tmp_path: Path) -> None:
    commands = FaultCommands(timeout_s=0.5, of_all={"kill": (
        "sh", "-c", f"echo begun; sleep 60 & echo $! > {tmp_path}/pid; wait")})
    began = time.monotonic()
    with pytest.raises(FloodmarkError, match=r"did not end within 0\.5 s; its output: begun"):
        run(commands)

    assert time.monotonic() - began < 55
    child = int((tmp_path / "pid").read_text())
    wait_until("its child to be gone", lambda: state_of(child) is None)


async def test_an_interrupted_run_waits_for_its_running_command(tmp_path: Path) -> None:
    commands = FaultCommands(of_all={
        "start": ("sh", "-c", f"touch {tmp_path}/begun; sleep 0.3; touch {tmp_path}/whole")})
    await interrupted(commands.run("n1", "start", {}), tmp_path / "begun")

    assert (tmp_path / "whole").exists()


async def test_no_node_is_started_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start was interrupted, and it answers only later: the second start waits for it."""
    count = tmp_path / "count"
    cluster = own(tmp_path, FaultCommands(of_all={"start": ("sh", "-c", f"echo x >> {count}")}))
    answers = AsyncMock(return_value=False)
    monkeypatch.setattr(cluster, "_answers", answers)

    await interrupted(cluster.start_node("n1"), count)
    again = asyncio.create_task(cluster.start_node("n1"))
    asked = answers.await_count
    while answers.await_count < asked + 2:
        await asyncio.sleep(0.01)
    answers.return_value = True
    await again

    assert count.read_text() == "x\n"


def test_only_what_every_node_has_commands_for_is_offered(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(
        "[commands]\nkill = ['k']\nstart = ['s']\nstop = ['p']\ncut = ['c']\nheal = ['h']\n"
        "[nodes.n1]\npause = ['z']\nresume = ['r']\n")
    cluster = own(tmp_path, read_fault_commands(tmp_path / "f.toml"))

    assert {ability(cluster, kind) for kind in (Kills, Cuts, Elects)} == {cluster}
    assert "has no command pause for n2" in why_not(cluster, Pauses)
    assert "has no command fetch_logs for n1, n2" in why_not(cluster, ReadsLogs)


async def test_no_command_of_all_nodes_is_run_for_the_controller(tmp_path: Path) -> None:
    commands = FaultCommands(of_all=dict.fromkeys(ACTS, ("touch", f"{tmp_path}/ran")), source="f.toml")
    cluster = own(tmp_path, commands)
    for act in (cluster.kill, cluster.stop_node, cluster.start_node, cluster.pause):
        with pytest.raises(FloodmarkError, match="no node 'controller': there are n1, n2"):
            await act("controller")
    with pytest.raises(FloodmarkError, match="has no command kill for controller"):
        await commands.run("controller", "kill", {})

    assert not (tmp_path / "ran").exists()


async def test_a_node_that_cannot_be_healed_leaves_no_other_cut(tmp_path: Path) -> None:
    cluster = own(tmp_path, FaultCommands(of_all={"cut": ("true",), "heal": (
        "sh", "-c", f"touch {tmp_path}/{{node}}; test {{node}} = n2")}))

    await cluster.cut({"n1": ["n2"], "n2": ["n1", "controller"]})
    with pytest.raises(FloodmarkError, match=r"the command heal of n1 .* ended with 1, without output$"):
        await cluster.heal()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["n1", "n2"]


def planned(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> RunPlan:
    """A run whose owner has commands for all that a node can suffer."""
    (folder / "f.toml").write_text("[commands]\n" + "".join(f"{act} = ['true']\n" for act in ACTS))
    monkeypatch.setattr("floodmark.harness.cluster.own_cluster.find", AsyncMock(return_value=FOUND))
    return planned_on_own(RunSpec(
        bootstrap="h1", may_break=True, faults_file=folder / "f.toml", out=folder / "run", **options))


def test_only_what_its_commands_can_do_is_planned(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cuts = 0
    for seed in range(3):
        plan = planned(tmp_path, monkeypatch, nemesis="crash,cut", seed=seed, duration=300.0)
        plan.schedule_runner.refuse(plan.schedule)
        cuts += sum(entry.f == "cut" for entry in plan.schedule)

    assert cuts > 30
    planned(tmp_path, monkeypatch, nemesis="all")
    assert "controller is left out: the controller of your own cluster is no node" in capsys.readouterr().err
    with pytest.raises(UsageError, match="controller is impossible on this cluster: the controller of"):
        planned(tmp_path, monkeypatch, nemesis="controller")


@pytest.mark.parametrize(("entry", "why"), [
    ({"f": "cut", "nodes": ["n1"], "reset": True}, "they do not reset connections"),
    ({"f": "cut", "grudge": {"n1": ["clients"]}}, "has no command cut for clients"),
    ({"f": "pause", "nodes": ["controller"]}, "no command kills or pauses it"),
])
def test_a_schedule_that_its_commands_cannot_carry_out_is_refused(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: dict[str, Any], why: str) -> None:
    (tmp_path / "s.json").write_text(json.dumps([entry]))
    plan = planned(tmp_path, monkeypatch, schedule_file=tmp_path / "s.json")
    with pytest.raises(UsageError, match=rf"^entry 0 of the schedule .*{why}"):
        plan.schedule_runner.refuse(plan.schedule)


def test_unknown_nodes_and_topics_without_the_prefix_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"names n3; this cluster's nodes are n1, n2"):
        OwnCluster(FOUND, tmp_path, prefix="p-", commands=FaultCommands(of_nodes={"n3": {}}))
    cluster = OwnCluster(FOUND, tmp_path, prefix="floodmark-1-")
    with pytest.raises(UsageError, match="its name begins with floodmark-1-"):
        asyncio.run(cluster.create([PartitionSpec(key=0, topic="orders", partition=0, replicas=("n1",))]))


def test_the_commands_of_the_page_find_the_pod_by_its_name(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every example is read; kubectl is a script that writes what it was given."""
    page = Path(__file__).parents[2] / "harness" / "TESTING_YOUR_OWN_KAFKA.md"
    acts = ("kill", "stop", "start", "pause", "resume", "fetch_logs")
    examples = []
    for number, text in enumerate(re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)):
        (tmp_path / f"{number}.toml").write_text(text)
        examples.append(read_fault_commands(tmp_path / f"{number}.toml"))
    assert [set(acts) - set(one.of_all) for one in examples] == [set()] * 3
    calls = tmp_path / "calls"
    (tmp_path / "kubectl").write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >>{calls}\n')
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for act in acts:
        run(examples[-1], act=act, host="c-broker-12.c-kafka-brokers.kafka.svc", folder="/to")

    words = [line.split() for line in calls.read_text().splitlines()]
    assert [(one[2], next(word for word in one if "c-broker-12" in word)) for one in words] == [
        ("exec", "c-broker-12"), ("delete", "c-broker-12"), ("wait", "pod/c-broker-12"),
        ("exec", "c-broker-12"), ("exec", "c-broker-12"),
        ("cp", "c-broker-12:/var/lib/kafka/data-0/kafka-log12")]


# -- clocks -----------------------------------------------------------------------------------------------

@given(st.lists(st.integers(-10**12, 10**12), min_size=2, max_size=5), st.lists(
    st.tuples(st.integers(0, 5 * MS_NS), st.integers(0, 5 * MS_NS)), min_size=1, max_size=6))
def test_the_clocks_are_no_further_apart_than_the_stated_error(
        offsets: list[int], waits: list[tuple[int, int]]) -> None:
    """Clocks with these offsets, read over links with these delays there and back."""
    now = 1_700_000_000_000_000_000
    bounds = {}
    for number, offset in enumerate(offsets):
        seen = [Stamped(sent_ns=now, received_ns=now + there + back, stamp_ms=(now + there + offset) // MS_NS)
                for there, back in waits]
        bound = ahead(seen)
        assert bound is not None
        assert bound.least_ns <= offset <= bound.most_ns
        bounds[f"n{number}"] = bound
    assert error_ns(bounds) >= max(offsets) - min(offsets)
    assert error_ns(bounds) <= max(offsets) - min(offsets) + 2 * (MS_NS + min(sum(wait) for wait in waits))


def test_a_clock_that_was_set_meanwhile_gives_no_bound_and_bounds_of_two_times_are_joined() -> None:
    now = 1_700_000_000_000 * MS_NS
    assert ahead([Stamped(sent_ns=now, received_ns=now + MS_NS, stamp_ms=stamp)
                  for stamp in (1_700_000_000_000, 1_700_000_009_000)]) is None
    assert ahead([]) is None
    first, second = Ahead(least_ns=1, most_ns=5), Ahead(least_ns=-3, most_ns=2)
    assert joined(first, second) == joined(second, first) == Ahead(least_ns=-3, most_ns=5)
    assert error_ns({"n1": first}) == 0


# -- metadata ---------------------------------------------------------------------------------------------

def metadata(leader: int, epoch: int, isr: tuple[int, ...]) -> ClusterMetadata:
    state = PartitionMetadata(error=0, leader=leader, epoch=epoch, isr=isr)
    return ClusterMetadata(brokers={}, partitions={("t", 0): state})


def test_the_highest_epoch_wins_and_among_equals_the_leaders_own_metadata() -> None:
    old, stale, its = metadata(1, 4, (1, 2, 3)), metadata(2, 5, (1, 2, 3)), metadata(2, 5, (2,))
    for seen, topic, found in (({"n1": old, "n3": stale, "n2": its}, "t", its), ({"n1": old}, "t", old),
                               ({"n1": old}, "u", None)):
        latest = _latest(seen, (topic, 0), {1: "n1", 2: "n2", 3: "n3"})
        assert latest == (found and found.partitions["t", 0])


@pytest.mark.parametrize(("hw", "isr", "leo"), [(6, (1, 2), 6), (5, (1, 2), UNKNOWN), (6, (1,), UNKNOWN)])
def test_a_leo_that_is_not_shown_is_the_leaders_if_it_is_in_the_isr_and_all_is_committed(
        tmp_path: Path, hw: int, isr: tuple[int, ...], leo: object) -> None:
    cluster, answer = OwnCluster(FOUND, tmp_path, prefix="p-"), metadata(1, 4, isr)
    cluster.partitions = (replace(SPEC, replicas=("n1", "n2")),)
    seen = cluster._replicas({"n1": answer, "n2": answer}, {0: answer.partitions["t", 0]},
                             {("n1", 0): (6, hw)}, {1: "n1", 2: "n2"})
    assert (seen["n1", 0].leo, seen["n2", 0].leo) == (6, leo)


# -- requests ---------------------------------------------------------------------------------------------

async def test_a_topic_that_is_gone_already_is_deleted() -> None:
    gone = SimpleNamespace(responses=[SimpleNamespace(error_code=3)])
    await broker_requests.delete_topic(AsyncMock(return_value=gone), "t", timeout_s=1)


async def test_a_replica_that_is_cut_between_two_requests_is_left_out(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Its HW, which is asked first, would be above its LEO. The next look shows it."""
    for request, field, values in (("fetch", "hw", (5, 5)), ("list_offsets", "offset", (5, 3, 5))):
        monkeypatch.setattr(codec, request, AsyncMock(side_effect=[
            {SPEC.place: SimpleNamespace(**{field: value}, error=0, error_code=0)} for value in values]))
    brokers = broker_requests.Brokers(AsyncMock(return_value=SimpleNamespace(usable=True)))
    looks = [await brokers.replica_ends({"n1": ("h", 1)}, [SPEC], 10.0) for _ in range(2)]
    assert looks == [{}, {("n1", 0): (5, 5)}]


# -- what its owner writes ----------------------------------------------------------------------------------

def read_of_owner(folder: Path, line: str) -> str:
    """Commands, client settings (none of whose passwords is shown), addresses."""
    kind, _, text = line.partition(" ")
    file = folder / {"commands": "f.toml"}.get(kind, "client.properties")
    file.write_text(text.replace("\\n", "\n").replace("PASSWORD", PASSWORD))
    try:
        match kind:
            case "addresses":
                return f"= {addresses_of(text)}"
            case "commands":
                read_fault_commands(file)
                return "="
        read = read_client_config(file)
        read.dial()
        settings = read.library_settings()
        assert PASSWORD not in repr(read)
        return f"= {settings.pop('sasl.password') == PASSWORD} {settings} ignored {read.ignored}"
    except UsageError as error:
        told = str(error).replace(str(folder), "FOLDER").replace("\n", " ")
        return f"! {told}".partition(" TOML: ")[0]


def test_what_an_owner_writes_is_read_or_refused(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    answered_as_written("own_cluster.txt", partial(read_of_owner, tmp_path), request)
    assert PASSWORD not in (GOLDEN / "own_cluster.txt").read_text()


async def refuses_passwords(frame: bytes) -> bytes:
    api, version = struct.unpack_from(">hh", frame)
    answers = {17: SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]),
               36: SaslAuthenticateResponse(error_code=58, error_message=PASSWORD, auth_bytes=b"")}
    return encoded(answers[api], api, version) if api in answers else api_versions({17: (0, 1), 36: (0, 1)})


@pytest.mark.parametrize(("ca", "why"), [
    ("broker.pem", "^the broker refuses the user name or the password$"),
    ("", r"^no TLS with 127\.0\.0\.1:\d+: CERTIFICATE_VERIFY_FAILED$"),
])
async def test_a_refused_login_is_told_without_the_password(tmp_path: Path, ca: str, why: str) -> None:
    pem = tmp_path / "broker.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=b", "-addext",
                    "subjectAltName=IP:127.0.0.1", "-keyout", pem, "-out", pem],
                   check=True, capture_output=True)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pem)
    security = Security(protocol="SASL_SSL", mechanism="PLAIN", username="me", password=PASSWORD,
                        ca=str(tmp_path / ca) if ca else None)
    broker = partial(served, answer=refuses_passwords)
    async with await asyncio.start_server(broker, "127.0.0.1", 0, ssl=tls) as server:
        with pytest.raises(Refused, match=why):
            await security.dial()(*server.sockets[0].getsockname(), 60.0)
