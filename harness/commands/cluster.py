"""Runs a cluster for Kafka clients (`floodmark cluster up`), and sends it requests from another terminal: for
faults, and for its state.

Rules
1. `up` ends by Ctrl-C or SIGTERM, and nothing of the cluster survives it.
2. The only line on stdout is the bootstrap address, for scripts. Everything else goes to stderr.
3. The process that runs the cluster carries out the requests, one at a time.
4. A fault is requested by its name in harness.faults. It is carried out as in a run, and refused if this
   cluster lacks the ability. What is impossible in a node's present state (a kill of a dead node) is refused
   before anything is done to other nodes.
5. One nemesis at a time strikes beside the requests, from `nemesis` to `end_nemesis`, each with a history of
   its own; `struck` lists its strikes so far. A fault that could not be applied, and a moment that did not
   come, end it: nothing strikes after that.
6. The server's address is in cluster.json, in the folder's subfolder "work", and in a pointer to the latest
   cluster; both are removed when it closes.
7. A test suite's cluster is a process of its own, `python -m floodmark.harness.commands.cluster`: the
   options of `floodmark cluster up` come as one line of JSON on stdin. When stdin ends, the test process is
   gone: this process ends in an orderly way, and its cluster with it.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import textwrap
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
import orjson

from floodmark.harness import catalog
from floodmark.harness.cluster.broker_cluster import healthy
from floodmark.harness.cluster.layout import private_folder
from floodmark.harness.cluster.processes import ANSWER_BYTES_MAX
from floodmark.harness.commands.broker_questions import refuse_config
from floodmark.harness.commands.error_exits import code_of
from floodmark.harness.errors import FloodmarkError, UnfitCluster, UsageError
from floodmark.harness.event_loop import end_all, run_loop, wait_until
from floodmark.harness.faults import COMMANDS, FAULTS, LOSES
from floodmark.harness.history import Recorder
from floodmark.harness.op import Intent, Outcome
from floodmark.harness.phases.main_phase import LoadObserver
from floodmark.harness.protocols import (
    Addressed,
    Adopts,
    Cluster,
    PartitionSpec,
    Struck,
    ability,
    method_for,
    why_not,
)
from floodmark.harness.report.phrases import grudge, number_of
from floodmark.harness.report.run_summary import missed_moment_text
from floodmark.harness.report.terminal import table
from floodmark.harness.run import refuse_nonempty
from floodmark.harness.run_location import temporary_folder
from floodmark.harness.schedule import json_form
from floodmark.harness.schedule.moments import Entry, Schedule
from floodmark.harness.schedule.views import CLIENTS, CONTROLLER, UNKNOWN, ActiveFaults, View
from floodmark.harness.spec import PROXIED, RunSpec, decoded, pairs
from floodmark.harness.verdict import EXIT_HARNESS, EXIT_VALID
from floodmark.nemesis.schedule_runner import ScheduleRunner
from floodmark.nemesis.strikes import Strikes, unavailable

HISTORY = "nemesis.jsonl"  # in the cluster's folder "work": the strikes of a nemesis, as in a run's history
LATER = "nemesis-{}.jsonl"  # those of the second, the third, ...
IMPOSSIBLE: Mapping[tuple[str, str], str] = {  # of a fault, in a node's present state
    ("start", "up"): "is running already",
    ("start", "paused"): "is paused: resume it",
    ("pause", "paused"): "is paused already",
    ("resume", "up"): "is not paused: there is nothing to resume",
    ("stop", "paused"): "is paused and cannot be stopped: resume it, or kill it",
    **{(f, "down"): f"is not running: there is nothing to {f}" for f in ("kill", "stop", "pause", "resume")},
}
_say = partial(click.echo, err=True)
ASK_S = 120.0  # a start waits for its node
HEALTHY_WITHIN_S = 60.0  # after mending
LOOK_AFTER_S = 0.5  # how often to look for nodes that died
CLIENTS_CAN = {  # what a system's clients can do, by its name
    "reference": """\
Clients can list, create, describe, alter and delete topics, produce (also idempotently) with any compression,
assign partitions and read them, and ask for offsets by time.
There are no consumer groups and no transactions: subscribe, commit and init_transactions are refused at once.
""",
    "kafka": """\
This is Apache Kafka {version}: its clients and tools work as with any other. A topic must be created before
it is used (auto.create.topics.enable=false).
""",
}


# -- the server ---------------------------------------------------------------------------------------------

class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A line of another terminal. do: a fault's name, state, mend, nemesis, struck or end_nemesis."""

    id: int
    do: str
    nodes: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # of a cut: from whom; none: from all other brokers
    one_way: bool = False
    reset: bool = False
    schedule: list[Any] = []  # the entries of a nemesis


class ServedNemesis:
    """Carries out a nemesis on a cluster that is up, by the runner of schedules of every run. Implements
    protocols.Nemesis. act: carries out a fault, so that the server's state shows it."""

    def __init__(self, cluster: Cluster, schedule: Schedule, history: Path,
                 act: Callable[[Entry], Awaitable[str]]) -> None:
        """Begins it; UsageError if the cluster cannot carry out the schedule."""
        self.struck: list[str] = []  # a line for each strike so far
        self.failure: str | None = None
        self.answers = Strikes(cluster).answers
        self._cluster, self._act = cluster, act
        self._runner = ScheduleRunner((self,), (), cluster, besides=cluster.nodes)
        self._runner.refuse(schedule)
        self._recorder = Recorder(history)
        self.work: asyncio.Task[None] | None = asyncio.create_task(self._carry_out(schedule))

    async def end(self) -> None:
        """Ends it, after a strike that is under way; no other request is answered before. May be repeated."""
        if self.work is not None:
            await end_all([self.work])
            self.work = None
            self._recorder.close()

    async def _carry_out(self, schedule: Schedule) -> None:
        observer = LoadObserver(self._recorder, self._cluster, self._view)
        try:
            await self._runner.carry_out(schedule, observer, self._recorder, _refuse_to_send)
        except FloodmarkError as error:
            self.failure = str(error)
        except Exception as error:  # the test fails by it, which must not pass without faults
            self.failure = f"{type(error).__name__}: {error}"

    async def _view(self) -> View:
        """What is seen now; healthy is what has the partitions that are there now."""
        await adopt(self._cluster)
        view = await self._cluster.observe()
        self._runner.assign(partitions_in(view, self._cluster))
        return view

    async def strike(self, entry: Entry, nodes: tuple[str, ...]) -> Struck:
        for reasons in self._runner.missed_words().values():
            why = "\n".join(missed_moment_text(reasons, indent=2))
            raise FloodmarkError(f"the nemesis stopped after {len(self.struck)} strikes, a moment did not "
                                 f"come:\n{why}")
        await asyncio.shield(self._act(replace(entry, nodes=nodes)))
        self.struck.append(f"{self._recorder.now_ns() / 1e9:.3f} s {' '.join((entry.f, *nodes))}")
        return Struck(nodes=nodes)


async def adopt(cluster: Cluster) -> None:
    """Learns which topics there are now, where clients can create them."""
    if (adopts := ability(cluster, Adopts)) is not None:
        await adopts.adopt()


def partitions_in(view: View, cluster: Cluster) -> list[PartitionSpec]:
    """The partitions whose topics were not deleted."""
    return [spec for spec in cluster.partitions if spec.key in view.partitions or not view.unfenced]


async def _refuse_to_send(_: Intent) -> Outcome:
    raise FloodmarkError("a nemesis of a cluster that is up sends nothing")


@dataclass(slots=True, kw_only=True)
class ClusterServer:
    """Serves one cluster. `say` prints others' requests in the terminal in which the cluster runs."""

    cluster: Cluster
    folder: Path
    say: Callable[[str], None]
    _nemeses: list[ServedNemesis] = field(default_factory=list)  # the latest may still strike
    _faults: ActiveFaults = field(default_factory=ActiveFaults)  # in force; of a cut what was said of it
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await next_line(reader):
                writer.write(json.dumps(await self._reply(line)).encode() + b"\n")
        writer.close()

    async def _reply(self, line: bytes) -> Mapping[str, Any]:
        try:
            request = msgspec.json.decode(line, type=Request)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return {"id": None, "error": f"the request is not valid: {error}", "usage": True}
        try:
            return {"id": request.id, "ok": await self.carry_out(request)}
        except FloodmarkError as error:
            return {"id": request.id, "error": str(error), "usage": isinstance(error, UsageError)}

    async def carry_out(self, request: Request) -> Mapping[str, Any]:
        match request.do:
            case "state":
                async with self._lock:
                    await adopt(self.cluster)
                    look = await self.cluster.observe()
                    return describe_cluster(self.cluster, look, self._faults)
            case "mend":
                await self._mend()
                return {}
            case "nemesis" | "struck" | "end_nemesis":
                return await self._with_nemesis(request)
            case "cut":
                return {"done": await self._strike_alone(*self._cut_of(request))}
            case f:
                nodes = tuple(dict.fromkeys(request.nodes))
                return {"done": await self._strike_alone(Entry(f=f, nodes=nodes))}

    async def _with_nemesis(self, request: Request) -> Mapping[str, Any]:
        if request.do == "nemesis":
            if self._nemeses and self._nemeses[-1].work is not None:
                raise UsageError("a nemesis has begun and has not ended: end it first")
            schedule = json_form.read(request.schedule, source="the nemesis", nodes=self.cluster.nodes)
            history = LATER.format(len(self._nemeses) + 1) if self._nemeses else HISTORY
            self._nemeses.append(ServedNemesis(self.cluster, schedule, self.folder / "work" / history,
                                               self._strike_alone))
        if not self._nemeses:
            raise UsageError("no nemesis has begun")
        nemesis = self._nemeses[-1]
        if request.do == "end_nemesis":
            await nemesis.end()
        return {"struck": nemesis.struck, "failure": nemesis.failure}

    async def _mend(self) -> None:
        """Returns when every ISR is full again. FloodmarkError if that takes long, or a broker died."""
        if died := self.cluster.died():
            raise FloodmarkError(f"{', '.join(died)} died without a fault: its log is in "
                                 f"{self.folder / 'work'}")
        async with self._lock:
            residue = await self.cluster.mend()
            self._faults = ActiveFaults()
        if residue:
            raise FloodmarkError("; ".join(residue))

        async def unmet() -> str | None:
            await adopt(self.cluster)
            look = await self.cluster.observe()
            return healthy(look, partitions_in(look, self.cluster), self.cluster.nodes)

        await wait_until(unmet, "every replica to be in the ISR again", HEALTHY_WITHIN_S)

    async def _strike_alone(self, entry: Entry, done: str = "") -> str:
        async with self._lock:
            self.say(done := await self._strike(entry, done))
            return done

    async def _strike(self, entry: Entry, done: str) -> str:
        """Carries out an entry of a schedule, as in a run; returns what was done, of a cut in these words."""
        f, nemesis = entry.f, Strikes(self.cluster)
        if f not in nemesis.answers:
            why = unavailable(self.cluster).get(f)
            raise FloodmarkError(f"a cluster that is up cannot {f!r}" if why is None
                                 else f"{f} is impossible on this cluster: {why}")
        if entry.nodes:
            look = await self.cluster.observe()
            for node in entry.nodes:
                self._refuse(f, node, look)
        if f == "power_cut":
            await adopt(self.cluster)  # losses are reported by partition
        struck = await nemesis.strike(entry, entry.nodes)
        done = done or "; ".join(grudge(struck.detail["grudge"])) if f == "cut" else done
        self._faults = self._faults.after(f, [done] if f == "cut" else entry.nodes)
        if f in ("cut", "heal"):
            return done or "healed"
        if f == "power_cut":
            return "; ".join(loss_text(node, struck.detail, self.cluster.partitions) for node in entry.nodes)
        return "; ".join(f"{f} {node}" for node in entry.nodes)

    def _refuse(self, f: str, node: str, look: View) -> None:
        """Raises UsageError if the fault is impossible in the node's present state."""
        known = self.cluster.nodes
        if node == CONTROLLER and f not in ("expire", "power_cut"):
            return  # a View does not show whether it runs
        if node not in known:
            raise UsageError(f"no node {node!r}: there are {', '.join(known)}")
        state = "down" if node not in look.running else "paused" if node in self._faults.paused else "up"
        if (f, state) in IMPOSSIBLE:
            raise UsageError(f"{node} {IMPOSSIBLE[f, state]}")

    def _cut_of(self, request: Request) -> tuple[Entry, str]:
        """The cut that is requested, and the sentence about it when it is done."""
        nodes = request.nodes
        others = request.others or tuple(node for node in self.cluster.nodes if node not in nodes)
        valid = (*self.cluster.nodes, CONTROLLER, CLIENTS)
        for name in (*nodes, *others):
            if name not in valid:
                raise UsageError(f"no node {name!r}: there are {', '.join(valid)}")
        if not nodes or not others or set(nodes) & set(others):
            raise UsageError("a cut needs two sides: name nodes, and others from which to cut them")
        unheard = {node: list(others) for node in nodes}
        if not request.one_way:
            unheard |= {other: list(nodes) for other in others}
        one = len(nodes) == 1 and nodes[0] != CLIENTS
        verb = f"receive{'s' * one} nothing" if request.one_way else f"{'is' if one else 'are'} cut"
        done = f"{', '.join(nodes)} {verb} from {', '.join(others)}{' (by reset)' * request.reset}"
        return Entry(f="cut", args={"grudge": unheard, "reset": request.reset}), done


async def next_line(reader: asyncio.StreamReader) -> bytes:
    """The next line; empty at the end, blank if it is too long."""
    try:
        return await reader.readline()
    except ValueError:
        return b"\n"


def describe_cluster(cluster: Cluster, look: View, faults: ActiveFaults) -> dict[str, Any]:
    return {
        "bootstrap": bootstrap(cluster), "nodes": list(cluster.nodes), "running": sorted(look.running),
        "unfenced": sorted(look.unfenced), "paused": sorted(look.running & {*faults.paused}),
        "died": cluster.died(), "cuts": [words for f, words in faults.lasting if f == "cut"],
        "partitions": [{
            "key": spec.key, "topic": spec.topic, "partition": spec.partition,
            "replicas": list(spec.replicas),
            "truth": asdict(look.partitions[spec.key]) if spec.key in look.partitions else None,
            "views": {node: {name: value for name, value in asdict(look.replicas[node, spec.key]).items()
                             if value is not UNKNOWN}
                      for node in spec.replicas if (node, spec.key) in look.replicas},
        } for spec in partitions_in(look, cluster)],
    }


def addressed(cluster: Cluster) -> Addressed:
    """The cluster; UnfitCluster if it has no sockets."""
    found = ability(cluster, Addressed)
    if found is None:
        raise UnfitCluster(f"no Kafka client reaches this cluster: {why_not(cluster, Addressed)}")
    return found


def bootstrap(cluster: Cluster) -> str:
    return ",".join(f"{host}:{port}" for host, port in addressed(cluster).addresses().values())


@contextlib.asynccontextmanager
async def open_server(cluster_server: ClusterServer, folder: Path) -> AsyncIterator[None]:
    path = private_folder() / f"{os.getpid()}.sock"  # short: a socket's path has at most 107 bytes
    path.unlink(missing_ok=True)
    notice, latest = folder / "work" / "cluster.json", private_folder() / "latest"
    server = await asyncio.start_unix_server(cluster_server.answer, path, limit=ANSWER_BYTES_MAX)
    try:
        notice.write_text(json.dumps({"socket": str(path), "pid": os.getpid()}) + "\n", encoding="utf-8")
        latest.write_text(str(folder.resolve()), encoding="utf-8")
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)
        notice.unlink(missing_ok=True)
        if latest.exists() and latest.read_text(encoding="utf-8") == str(folder.resolve()):
            latest.unlink()


def find_cluster(folder: Path | None) -> tuple[Path, str, int]:
    """Folder, socket and process of the server in `folder`, or the latest. FloodmarkError: there is none."""
    if folder is None:
        latest = private_folder() / "latest"
        if not latest.exists():
            raise FloodmarkError("no cluster is up: start one with 'floodmark cluster up'")
        folder = Path(latest.read_text(encoding="utf-8"))
    try:
        fields = json.loads((folder / "work" / "cluster.json").read_text(encoding="utf-8"))
        return folder, str(fields["socket"]), int(fields["pid"])
    except (OSError, ValueError, LookupError, TypeError):
        raise FloodmarkError(f"no cluster is up in {folder}") from None


# -- the commands -------------------------------------------------------------------------------------------

def state(folder: Path | None, *, as_json: bool = False) -> int:
    answer = ask_cluster(folder, "state")
    print(json.dumps(answer) if as_json else state_text(answer))
    return EXIT_VALID


def state_text(answer: Mapping[str, Any]) -> str:
    rows = []
    for one in answer["partitions"]:
        truth, known = one["truth"], ("?", "?", "?")
        if truth is not None:
            elr = [f"(ELR {' '.join(truth['elr'])})"] if truth.get("elr") else []  # eligible leader replicas
            known = truth["leader"] or "none", str(truth["epoch"]), " ".join([*truth["isr"], *elr])
        first = f"{one['topic']}-{one['partition']}", *known
        for node in one["replicas"]:
            view = one["views"].get(node)
            seen: tuple[str, ...] = ("-", "-", "-", "(silent)")
            if view is not None:
                leader = view.get("leader", "?")  # systems may lack some
                seen = (*(str(view.get(name, "?")) for name in ("leo", "hw", "epoch")),
                        "leads" if leader == node else leader or "nobody")
            rows.append((*first, node, *seen))
            first = "", "", "", ""
    return "\n".join([
        f"bootstrap  {answer['bootstrap']}",
        "brokers    " + ", ".join(f"{node} {_condition(answer, node)}" for node in answer["nodes"]),
        *(f"cut        {one}" for one in answer["cuts"]), "",
        table(("partition", "leader", "epoch", "ISR", "replica", "LEO", "HW", "epoch", "follows"), rows)])


def _condition(answer: Mapping[str, Any], node: str) -> str:
    if node not in answer["running"]:
        return "died by itself" if node in answer["died"] else "down"
    words = ["paused"] if node in answer.get("paused", ()) else []
    words += ["fenced"] if node not in answer["unfenced"] else []
    return ", ".join(words) or "up"


def hints(cluster: Cluster) -> str:
    """What can be done with this cluster, for people: only what its system and place can do."""
    acts = [f for f in COMMANDS if FAULTS[f].on == "nodes" and method_for(cluster, f) is not None]
    acts.sort(key=LOSES.__contains__)  # those that lose data come last
    words = ["state", f"{'|'.join(acts).replace('_', '-')} NODE..."]
    words += ["cut NODE... | heal"] if method_for(cluster, "cut") is not None else []
    commands = textwrap.indent("".join(f"floodmark cluster {one}\n" for one in words), " " * 23)
    clients = CLIENTS_CAN.get(cluster.system["name"], "").format_map(cluster.system)
    return f"From another terminal: {commands.lstrip()}{clients}Ctrl-C ends it."


def loss_text(node: str, struck: Mapping[str, Any], partitions: Sequence[PartitionSpec]) -> str:
    count = struck["lost_records"][node]
    names = {str(spec.key): f"{spec.topic}-{spec.partition}" for spec in partitions}
    ends = [f"{names[key]} at {leo}" for key, leo in struck["kept"][node].items() if key in names]
    gone = f"lost {number_of(count, 'record')} that it had not fsynced" if count else (
        "lost nothing: everything it had written was fsynced")
    sentence = f"power-cut {node}: it is down and {gone}"
    return f"{sentence}; its logs now end: {', '.join(ends)}" if ends else sentence


def strike(folder: Path | None, f: str, nodes: Sequence[str] = (), **besides: Any) -> int:
    """Applies a fault that is a command to the nodes, one after the other. besides: fields of Request."""
    _say(ask_cluster(folder, f, nodes=nodes, **besides)["done"])
    return EXIT_VALID


cut = partial(strike, f="cut")


async def _up(cluster: Cluster, folder: Path) -> int:
    serving = asyncio.create_task(_serve(cluster, folder))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    try:
        await asyncio.wait([serving])
    finally:
        await cluster.stop()
    return EXIT_HARNESS if serving.cancelled() else serving.result()  # told to stop before the start was done


async def _serve(cluster: Cluster, folder: Path) -> int:
    await cluster.start()
    with contextlib.suppress(asyncio.CancelledError):
        async with open_server(ClusterServer(cluster=cluster, folder=folder, say=_say), folder):
            _say(f"{len(cluster.nodes)} brokers are up; data and logs are in {folder}\n{hints(cluster)}")
            print(bootstrap(cluster), flush=True)
            known: set[str] = set()
            while True:
                for node in set(cluster.died()) - known:
                    known.add(node)
                    _say(f"{node} died by itself: see its log")
                await asyncio.sleep(LOOK_AFTER_S)
    return EXIT_VALID


def ask_cluster(folder: Path | None, do: str, **besides: Any) -> Mapping[str, Any]:
    """The answer of the server of the cluster in `folder` (None: the latest). UsageError, FloodmarkError."""
    where, path, pid = find_cluster(folder)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ASK_S)
            connection.connect(path)
            connection.sendall(json.dumps({"id": 1, "do": do, **besides}).encode() + b"\n")
            answer = json.loads(connection.makefile("rb").readline())
    except TimeoutError:
        raise FloodmarkError(f"the cluster in {where} did not answer '{do}' in {ASK_S:g} s") from None
    except (OSError, ValueError):
        raise FloodmarkError(f"the cluster in {where} is no longer up (it was process {pid})") from None
    if "error" in answer:
        raise (UsageError if answer["usage"] else FloodmarkError)(answer["error"])
    ok: Mapping[str, Any] = answer["ok"]
    return ok


def bring_up(spec: RunSpec, *, first_port: int | None) -> int:
    """Runs a cluster until Ctrl-C. Links are proxied by default, so that they can be cut."""
    if spec.cluster == catalog.SIMULATED:
        raise UsageError("a simulated cluster has no sockets, and lives in a run only: --cluster local")
    if spec.out is not None:
        refuse_nonempty(spec.out)
    with contextlib.nullcontext(spec.out) if spec.out else temporary_folder("floodmark-") as folder:
        brought = catalog.cluster(
            spec.cluster, folder, spec.nodes, first_port=first_port, rules=spec.rules, bugs=spec.bugs,
            config=pairs(spec.config), links=spec.links or PROXIED, kafka=spec.kafka,
            topic_config=pairs(spec.topic_config, "-t"), trace=False)  # not judged, and may be up for long
        addressed(brought)
        refuse_config(brought)
        return run_loop(_up(brought, folder), signals=())


def main() -> int:
    spec = decoded(orjson.loads(sys.stdin.buffer.readline()))

    def exit_when_stdin_ends() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=exit_when_stdin_ends, daemon=True).start()
    return code_of(lambda: bring_up(spec, first_port=None))


if __name__ == "__main__":
    sys.exit(main())
