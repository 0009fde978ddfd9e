"""What can be done with a cluster that is up, and its state as a table."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from floodmark.harness.faults import COMMANDS, FAULTS, LOSES
from floodmark.harness.protocols import Cluster, PartitionSpec, method_for
from floodmark.harness.report.phrases import align_columns, many

CLIENTS = {  # what a system's clients can do, by its name
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


def table(answer: Mapping[str, Any]) -> str:
    """The cluster's state as a table."""
    lines = [
        f"bootstrap  {answer['bootstrap']}",
        "brokers    " + ", ".join(f"{node} {_condition(answer, node)}" for node in answer["nodes"]),
    ]
    lines += [f"cut        {one}" for one in answer["cuts"]]
    rows = [("partition", "leader", "epoch", "ISR", "replica", "LEO", "HW", "epoch", "follows")]
    for one in answer["partitions"]:
        truth = one["truth"]
        known = ("?", "?", "?") if truth is None else (
            truth["leader"] or "none", str(truth["epoch"]), _members(truth))
        first = (f"{one['topic']}-{one['partition']}", *known)
        for node in one["replicas"]:
            rows.append((*first, node, *_replica(node, one["views"].get(node))))
            first = ("", "", "", "")
    return "\n".join([*lines, "", *align_columns(rows)])


def _condition(answer: Mapping[str, Any], node: str) -> str:
    if node not in answer["running"]:
        return "died by itself" if node in answer["died"] else "down"
    fenced = node not in answer["unfenced"]
    if node in answer.get("paused", ()):
        return "paused, fenced" if fenced else "paused"
    return "fenced" if fenced else "up"


def _members(truth: Mapping[str, Any]) -> str:
    """The ISR, and the eligible leader replicas if there are any: `n1 (ELR n2 n3)`."""
    elr = truth.get("elr")
    return " ".join([*truth["isr"], *([f"(ELR {' '.join(elr)})"] if elr else [])])


def _replica(node: str, view: Mapping[str, Any] | None) -> tuple[str, ...]:
    if view is None:
        return "-", "-", "-", "(silent)"
    shown = [str(view.get(name, "?")) for name in ("leo", "hw", "epoch")]  # systems may lack some
    leader = view.get("leader", "?")
    return shown[0], shown[1], shown[2], "leads" if leader == node else leader or "nobody"


def hints(cluster: Cluster) -> str:
    """What can be done with this cluster, for people: only what its system and place can do."""
    acts = [f for f in COMMANDS if FAULTS[f].on == "nodes" and method_for(cluster, f) is not None]
    acts.sort(key=LOSES.__contains__)  # those that lose data come last
    words = ["state", f"{'|'.join(acts).replace('_', '-')} NODE..."]
    words += ["cut NODE... | heal"] if method_for(cluster, "cut") is not None else []
    commands = textwrap.indent("".join(f"floodmark cluster {one}\n" for one in words), " " * 23)
    clients = CLIENTS.get(cluster.system["name"], "").format_map(cluster.system)
    return f"From another terminal: {commands.lstrip()}{clients}Ctrl-C ends it."


def loss_text(node: str, struck: Mapping[str, Any], partitions: Sequence[PartitionSpec]) -> str:
    """A sentence on what a power cut lost."""
    count = struck["lost_records"][node]
    names = {str(spec.key): f"{spec.topic}-{spec.partition}" for spec in partitions}
    ends = [f"{names[key]} at {leo}" for key, leo in struck["kept"][node].items() if key in names]
    gone = "lost nothing: everything it had written was fsynced" if count == 0 else (
        f"lost {many(count, 'record')} that it had not fsynced")
    sentence = f"power-cut {node}: it is down and {gone}"
    return f"{sentence}; its logs now end: {', '.join(ends)}" if ends else sentence
