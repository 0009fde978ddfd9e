"""Makes small runs with a trace from a seed, as a correct cluster leaves them, by the simulated one.

Rules kept here: a run has settled, and has acked something besides the probes; nothing in it is an error;
with a clock error every node's stamps are off by less than that.
"""

from random import Random

from trace_cluster import Cluster
from trace_controller import CONTROLLER
from trace_replica import epochs_of as boundaries

from histories import NODES, PROBER, READER, Line, RunFolder, checksum


def traced(random: Random, *, steps: int = 150, unclean: bool = False, overspent: bool = False,
           clock_error_ns: int = 0) -> RunFolder:
    """A settled run with its trace. With a clock error every node's stamps are off by a share of it."""
    while True:
        cluster = Cluster(random, random.randrange(1, 3), unclean=unclean, overspent=overspent)
        for _ in range(steps):
            cluster.step()
        cluster.settle()
        if any(line["type"] == "ok" and line["f"] == "send" and line["process"] != PROBER
               for line in cluster.lines):
            break
    return folder_of(cluster, clock_error_ns)


def folder_of(cluster: Cluster, clock_error_ns: int) -> RunFolder:
    skews = {node: cluster.random.randrange(clock_error_ns // 2 + 1) for node in (*NODES, CONTROLLER)}
    for line in cluster.pen.trace:
        line["time"] += skews[line["node"]]
    cluster.pen.trace.sort(key=lambda line: int(line["time"]))
    folder = RunFolder(run=run_json(cluster, clock_error_ns), lines=cluster.lines, rows=[],
                       dumps={node: [] for node in NODES}, trace=cluster.pen.trace)
    for (node, key), replica in sorted(cluster.replicas.items()):
        folder.set_log(node, key, [
            {"partition": key, "offset": offset, "epoch": epoch, "value": value, "crc": checksum(key, value)}
            for offset, (epoch, value) in enumerate(replica.log)])
        word = cluster.words[key]
        folder.rows.append({
            "node": node, "partition": key, "leader": word.leader, "epoch": word.epoch, "log_start": 0,
            "leo": replica.leo, "hw": replica.hw, "isr": list(word.isr), "clean": False,
            "epochs": [list(pair) for pair in boundaries(replica.log)]})
    return folder


def run_json(cluster: Cluster, clock_error_ns: int) -> Line:
    keys = sorted(cluster.words)
    return {
        "format": 1, "version": "0.1.0", "commit": "0" * 7, "seed": 1, "cluster": "local", "rules": "kip-320",
        "workload": "log", "nodes": list(NODES), "schedule": [], "missed": [], "died": [], "residue": None,
        "partitions": {str(key): {"topic": "log", "partition": key, "replicas": list(NODES),
                                  "cleanup": "delete"} for key in keys},
        "config": {node: {"min.insync.replicas": 2} for node in NODES},
        "guarantees": {"acks": "all", "min_insync_replicas": 2, "replication_factor": 3,
                       "unclean_leader_election": cluster.controller.unclean, "idempotence": False,
                       "retries": 0, "flush": "os", "isolation": "read_committed"},
        "settled": True, "history_lines": -1, "clock_error_ns": clock_error_ns, "ended": "done",
        "leaders": {str(key): {"leader": word.leader, "epoch": word.epoch, "isr": list(word.isr)}
                    for key, word in cluster.words.items()},
        "settle": {"timeout_s": 30, "processes": [PROBER], "no_leader": [], "no_ack": [], "isr_short": [],
                   "why": None},
        "final_reads": {"processes": [READER], "partitions": keys},
    }
