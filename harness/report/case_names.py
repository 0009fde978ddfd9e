"""Names what a run tested. CI servers use it as the test case's name, so it is the same in every campaign.

Rules
1. A name is made of what was asked for: the scenario or the nemeses, the cluster, the rules, the workload and
   its guarantees; for an imported history, its file's name. It never contains what changes from run to run:
   no seed, time, id or folder.
2. Runs of the same name in one report are numbered: the first has the plain name, then come #2, #3.
3. A run whose run.json cannot be read is named UNREADABLE.
"""

from collections import Counter
from collections.abc import Iterable

from floodmark.harness.faults import FAULTS, MENDING
from floodmark.harness.report.model import Json, mapping, text
from floodmark.harness.schedule.entry import ACTS

UNREADABLE = "a run that cannot be read"
# The keys of run.json that say what was asked for: a scenario and its row, or the nemeses, or a schedule
# file.
SCENARIO, ROW, NEMESIS, SCHEDULE_FILE = ASKED = ("scenario", "row", "nemesis", "schedule_file")
CHARS = 200
FORMS = {"kraft": "KRaft", "zookeeper": "ZooKeeper"}  # by run.json's `system.form`


def case_name(about: Json | None) -> str:
    """`scenario double-failover on high-watermark, local cluster of 3`;
    `nemesis crash,cut, local cluster of 3, kip-320, workload log, acks=all, min.insync.replicas=2`."""
    if about is None:
        return UNREADABLE
    file = text(mapping(about, "imported"), "file")
    scenario, on = text(about, SCENARIO), text(about, ROW) or text(about, "rules")
    if file:
        parts = [f"imported {file}", *guarantee_texts(about)]
    elif scenario:
        parts = [f"scenario {scenario}{f' on {on}' if on else ''}", system_text(about)]
    else:
        workload = text(about, "workload")
        parts = [nemesis_text(about), system_text(about), *rules_text(about),
                 *([f"workload {workload}"] if workload else []), *guarantee_texts(about)]
    return ", ".join(parts + (["reproduction"] if about.get("reproduces") and not file else []))[:CHARS]


def system_text(about: Json) -> str:
    """The cluster under test: `Apache Kafka 4.3.1, KRaft, 3 brokers`, `local cluster of 3`."""
    nodes, where = about.get("nodes"), text(about, "cluster") or "some"
    size = len(nodes) if isinstance(nodes, list) else "?"
    if not is_kafka(about):
        return f"{where} cluster of {size}"
    system = about["system"]
    form = FORMS.get(text(system, "form"), "")
    return ", ".join(filter(None, (f"Apache Kafka {text(system, 'version') or '?'}", form,
                                   f"{size} brokers{'' if where == 'local' else f' ({where})'}")))


def is_kafka(about: Json) -> bool:
    """Whether Apache Kafka was tested: its version says what it does, not run.json's `rules`."""
    return mapping(about, "system").get("name") == "kafka"


def nemesis_text(about: Json) -> str:
    """The nemeses or the schedule that was asked for; if run.json has neither, the faults planned."""
    if text(about, SCHEDULE_FILE):
        return f"schedule {text(about, SCHEDULE_FILE)}"
    asked, schedule = text(about, NEMESIS), about.get("schedule")
    if not asked and isinstance(schedule, list):
        planned = {str(entry.get("f")) for entry in schedule if isinstance(entry, dict)}
        asked = ",".join(sorted(planned & FAULTS.keys() - ACTS - MENDING))
    return f"nemesis {asked}" if asked not in ("", "none") else "no nemesis"


def rules_text(about: Json) -> list[str]:
    """The protocol generation, with the bugs and switches that were put into it."""
    if is_kafka(about) or not text(about, "rules"):
        return []
    one = next(iter(mapping(about, "config").values()), None)
    extra = [text(one, key) for key in ("floodmark.bugs", "floodmark.switches")
             ] if isinstance(one, dict) else []
    return [" ".join([text(about, "rules"), *filter(None, extra)])]


def guarantee_texts(about: Json) -> list[str]:
    """The settings that decide what is guaranteed, by Kafka's keys."""
    promised = mapping(about, "guarantees")
    texts = [f"{key}={promised[name]}" for name, key in (
        ("acks", "acks"), ("min_insync_replicas", "min.insync.replicas")) if name in promised]
    return texts + (["unclean elections allowed"] if promised.get("unclean_leader_election") else [])


def numbered(names: Iterable[str]) -> list[str]:
    """The names, made unique: the second of a name becomes `NAME #2`."""
    seen, unique = Counter[str](), []
    for name in names:
        seen[name] += 1
        unique.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return unique
