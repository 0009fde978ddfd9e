"""Names what a run tested, in words that are the same every night: test cases for CI servers.

Rules
1. A name is made of what was asked for: the scenario, or the nemeses as they were asked, the cluster, the
   rules, the workload and its promises; of a history from elsewhere its file's name. Never of what changes
   from run to run: no seed, time, id or folder.
2. Runs of one kind in one report are numbered in their order: the first has the plain name, then come #2, #3.
3. A run whose run.json cannot be read was nothing that has a name: it is called that.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from floodmark.harness.faults import FAULTS, MENDING
from floodmark.harness.schedule.entry import ACTS

UNREADABLE = "a run that cannot be read"
# What run.json tells of what was asked: of a scenario its name and row, of other runs the nemeses or a file.
SCENARIO, ROW, NEMESIS, SCHEDULE_FILE = ASKED = ("scenario", "row", "nemesis", "schedule_file")
CHARS = 200

Json = Mapping[str, Any]  # an object of run.json or verdict.json


def case_name(about: Json | None) -> str:
    """`scenario double-failover on high-watermark, local cluster of 3`;
    `nemesis crash,cut, local cluster of 3, kip-320, workload log, acks=all, min.insync.replicas=2`."""
    if about is None:
        return UNREADABLE
    imported, nodes = about.get("imported"), about.get("nodes")
    if isinstance(imported, dict) and word(imported, "file"):
        parts = [f"imported {word(imported, 'file')}", *promises(about)]
        return ", ".join(parts)[:CHARS]
    where = f"{word(about, 'cluster') or 'some'} cluster of {len(nodes) if isinstance(nodes, list) else '?'}"
    if word(about, SCENARIO):
        on = word(about, ROW) or word(about, "rules")
        parts = [f"scenario {word(about, SCENARIO)}{f' on {on}' if on else ''}", where]
    else:
        parts = [struck_by(about), where, *rules(about)]
        parts += [f"workload {word(about, 'workload')}"] if word(about, "workload") else []
        parts += promises(about)
    parts += ["had again"] if about.get("reproduces") else []
    return ", ".join(parts)[:CHARS]


def struck_by(about: Json) -> str:
    """What was to strike, as it was asked; where run.json does not say, by the kinds of faults planned."""
    if word(about, SCHEDULE_FILE):
        return f"schedule {word(about, SCHEDULE_FILE)}"
    if word(about, NEMESIS):
        return "no nemesis" if word(about, NEMESIS) == "none" else f"nemesis {word(about, NEMESIS)}"
    schedule = about.get("schedule")
    planned = {str(entry.get("f")) for entry in (schedule if isinstance(schedule, list) else ())
               if isinstance(entry, dict)} & FAULTS.keys() - ACTS - MENDING
    return f"nemesis {','.join(sorted(planned))}" if planned else "no nemesis"


def rules(about: Json) -> Iterator[str]:
    """The protocol generation, and the bugs that were put into it."""
    if word(about, "rules"):
        config = about.get("config")
        ones = list(config.values()) if isinstance(config, dict) else []
        of_one = ones[0] if ones and isinstance(ones[0], dict) else {}
        extra = [word(of_one, key) for key in ("floodmark.bugs", "floodmark.switches")]
        yield " ".join([word(about, "rules"), *filter(None, extra)])


def promises(about: Json) -> list[str]:
    """What the settings promise, by Kafka's keys."""
    guarantees = about.get("guarantees")
    guarantees = guarantees if isinstance(guarantees, dict) else {}
    told = [f"{key}={guarantees[name]}" for name, key in (
        ("acks", "acks"), ("min_insync_replicas", "min.insync.replicas")) if name in guarantees]
    return told + (["unclean elections allowed"] if guarantees.get("unclean_leader_election") else [])


def word(about: Json, key: str) -> str:
    value = about.get(key)
    return value if isinstance(value, str) else ""


def numbered(names: Iterable[str]) -> list[str]:
    """Each once: the second of a name is `NAME #2`."""
    seen: dict[str, int] = {}
    told = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        told.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return told
