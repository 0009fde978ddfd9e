"""The twin's reading of run.json's `observes`: which checks are not made, from the format's paragraph alone;
and of its `guarantees`: which are unknown, because of a strange value or a misspelt key.

Readings that had to be chosen: a check of the logs needs the dumps and the replicas' rows; one of the trace
needs every event that may show or excuse it; what stops at the final log_start needs the rows. An invalid
`observes` promises files, and nothing reliable in the trace.
"""

import json
from typing import Any

FILES = ("dumps", "replicas")
OF_LOGS = ("diverged", "epoch-lineage", "malformed-log", "under-replicated", "saw-then-lost", "unseen",
           "torn-transaction")
WHAT_EXCUSES = ("elect", "isr", "start")
RECORDS = ("append", "truncate", "hw", "become_leader", "become_follower", *WHAT_EXCUSES)
BROKERS = ("register", "fence", "unfence")
OF_TRACE: dict[str, tuple[str, ...]] = {
    "ack-rule": ("ack", "append", "become_leader", "start"),
    "candidate-incomplete": (*RECORDS, *BROKERS),
    "epoch-regressed": ("become_follower", "become_leader"),
    "hw-regressed": ("hw",),
    "leader-incomplete": RECORDS,
    "end-offset-ahead": ("become_follower", "become_leader", "hw", "start"),
    "read-above-hw": ("become_follower", "become_leader", "hw", "start"),
    "recovery-loss": ("ack", "append", "fetch", "start", "truncate"),
    "two-leaders": ("append", "hw"),
    "unclean-election": ("elect",),
    "unsafe-isr": ("ack", *RECORDS, *BROKERS),
    "unsafe-truncation": RECORDS,
}
STOP_AT_LOG_START = ("candidate-incomplete", "leader-incomplete", "unsafe-truncation")


def is_broken(run: dict[str, Any]) -> bool:
    """Whether `observes` has an invalid form."""
    promised = run.get("observes", {})
    return not isinstance(promised, dict) or any(
        type(promised.get(name, True)) is not bool for name in FILES) or not (
        isinstance(promised.get("trace", []), list)
        and all(isinstance(event, str) for event in promised.get("trace", [])))


def shows(run: dict[str, Any], name: str) -> bool:
    """Whether dumps, or replicas, are promised."""
    return is_broken(run) or run.get("observes", {}).get(name, True) is True


def events(run: dict[str, Any]) -> list[str] | None:
    """The events that the trace promises; None: all."""
    return None if is_broken(run) else run.get("observes", {}).get("trace")


def promises(run: dict[str, Any], *wanted: str) -> bool:
    promised = events(run)
    return not is_broken(run) and (promised is None or {*wanted} <= {*promised})


def blind_to_losses(run: dict[str, Any]) -> bool:
    return not all(shows(run, file) for file in FILES)


def not_made(run: dict[str, Any]) -> set[str]:
    """The checks whose input is not promised."""
    if is_broken(run):
        return set()
    left_out = {*OF_LOGS} if blind_to_losses(run) else set()
    if isinstance(run.get("imported"), dict):
        left_out.discard("torn-transaction")  # what clients were shown is enough there
    left_out |= {name for name, needed in OF_TRACE.items() if not promises(run, *needed)}
    return left_out | ({*STOP_AT_LOG_START} if not shows(run, "replicas") else set())


UNCLEAN = "unclean.leader.election.enable, internal topics"
BUDGET = "fault budget, internal topics"
LOSING = ("lost-write", "inconsistent-offsets", "saw-then-lost", "realtime-order", "nonmonotonic-send",
          "int-nonmonotonic-send", "duplicate", "end-offset-regressed", "nonmonotonic-poll", "poll-skip",
          "int-poll-skip", "G1a", "torn-transaction", "leader-incomplete", "candidate-incomplete",
          "unsafe-truncation")
TWICE = ("duplicate", "nonmonotonic-send", "int-nonmonotonic-send")
ANOMALIES = ("unseen", "G1a", "torn-transaction", "precommitted-read", "G0", "G0-process", "G0-realtime",
             "G1c", "G1c-process", "G1c-realtime")
# its values as JSON, or the least number; the value that permits most; the causes; the checks
GUARANTEES: dict[str, tuple[Any, Any, str, tuple[str, ...]]] = {
    "acks": (('"all"', '"-1"', "-1", '"1"', '"0"'), "1", "acks, internal topics",
             ("lost-write", "inconsistent-offsets", "realtime-order", "nonmonotonic-send",
              "int-nonmonotonic-send", "poll-skip", "int-poll-skip", "torn-transaction")),
    "min_insync_replicas": (1, 1, BUDGET, (*LOSING, "ack-rule")),
    "replication_factor": (0, 0, "", ("unfit",)),
    "unclean_leader_election": (("true", "false"), True, UNCLEAN, (*LOSING, "unclean-election")),
    "idempotence": (("true", "false"), False, "retries", TWICE),
    "retries": (0, 1, "retries", TWICE),
    "flush": (('"os"', '"every"'), "os", BUDGET, LOSING),
    "isolation": (('"read_committed"', '"read_uncommitted"'), "read_uncommitted", "isolation", ANOMALIES),
    "exactly_once": (("true", "false"), False, "", ("unfit",)),
}
MISSPELT = {"ack": "acks", "Acks": "acks", "min.insync.replicas": "min_insync_replicas", "retry": "retries",
            "unclean_leader_elections": "unclean_leader_election", "isolation.level": "isolation",
            "unclean.leader.election.enable": "unclean_leader_election", "enable.idempotence": "idempotence",
            "log.flush.interval.messages": "flush"}


def strange_guarantees(run: dict[str, Any]) -> set[str]:
    """The guarantees that nobody knows."""
    given = run.get("guarantees") or {}
    strange = {"isolation"} if run.get("isolation_of") else set()
    strange |= {*GUARANTEES} - {*given, "min_insync_replicas", "replication_factor", "flush", "exactly_once"}
    for key, value in given.items():
        wanted = GUARANTEES.get(key, (0,))[0]
        fits = type(value) is int and value >= wanted if isinstance(wanted, int) else (
            json.dumps(value) in wanted)
        if key in MISSPELT or (key in GUARANTEES and not fits):
            strange.add(MISSPELT.get(key, key))
    return strange


def weakened(run: dict[str, Any]) -> dict[str, Any]:
    """The guarantees, with the weakest value for each that nobody knows; -1 is all."""
    given = run.get("guarantees") or {}
    acks = {"acks": "all"} if given.get("acks") in (-1, "-1") else {}
    return {**given, **acks, **{name: GUARANTEES[name][1] for name in strange_guarantees(run)}}
