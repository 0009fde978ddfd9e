"""Plays rows of scenarios on clusters, several in parallel, and repeats runs that failed.

Rules
1. A run that missed a moment or failed is repeated, at most twice, with a message.
2. Each run has its own folder, ports and processes; a failed run does not affect others.
3. Ctrl-C ends the present runs in an orderly way, and no other begins.
"""

import asyncio
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from floodmark.harness.cluster.kafka.distribution import form_of, is_image, is_version, version_of
from floodmark.harness.commands.error_exits import sigterm_handler_restored
from floodmark.harness.commands.run import TOPIC, RunOptions, planned
from floodmark.harness.errors import FloodmarkError
from floodmark.harness.phases.main_phase import end_all, raise_first
from floodmark.harness.protocols import PartitionSpec
from floodmark.harness.reports.case_names import ROW, SCENARIO
from floodmark.harness.reports.safe_text import harmless
from floodmark.harness.reports.schedule_outcome import missed_moment_text
from floodmark.harness.run import DONE, INTERRUPTED, Run
from floodmark.harness.runner import Progress, carry_out
from floodmark.nemesis import systems
from floodmark.nemesis.expectations import Row
from floodmark.nemesis.scenario import Scenario

TRIES = 3
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One row of one scenario, to be played."""

    scenario: Scenario
    row: Row
    kafka: str | None = None  # Apache Kafka, a version or a folder; None: the reference broker
    turn: int = 1  # of the --times plays of this row

    @property
    def title(self) -> str:
        on = "" if self.kafka is None else f"Kafka {self.kafka}, "
        return f"{self.scenario.name} on {on}{self.row.label}{self._of_turn(', time ')}"

    @property
    def folder_name(self) -> str:
        """The run folder's name, without a comma: Kafka's log.dirs is a list."""
        label = self.row.label.replace(" ", "+").replace(",", "+")
        return f"{self.scenario.name}-{label}{self._of_turn('-time-')}"

    def _of_turn(self, before: str) -> str:
        return f"{before}{self.turn}" if self.turn > 1 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The result of a part: its last run."""

    part: Part
    folder: Path
    tries: int
    seconds: float  # of the last run
    why: str | None  # why the run itself failed; None: it did not, and every moment came

    @property
    def recorded(self) -> bool:
        """Whether there is anything to judge."""
        return Run(folder=self.folder).about_path.is_file()


def play(parts: Sequence[Part], cluster: str, parent: Path, *, at_once: int, say: Say) -> list[Played]:
    """Plays all parts, `at_once` at a time; the results are in the given order."""

    async def out() -> list[Played]:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        left = deque(enumerate(parts))
        found: dict[int, Played] = {}

        async def worker() -> None:
            while left:
                position, part = left.popleft()
                found[position] = await _play_part(part, cluster, parent, say)
                say(f"[{len(found)}/{len(parts)}] {_summary(found[position])}")

        workers = [asyncio.create_task(worker()) for _ in range(min(at_once, len(parts)))]
        try:
            await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            await end_all(workers)  # the present runs mend and read their clusters first
        raise_first(workers)
        return [found[position] for position in range(len(parts))]

    try:
        with sigterm_handler_restored():
            return asyncio.run(out())
    except asyncio.CancelledError as error:
        raise FloodmarkError("interrupted: the scenarios were not played to the end") from error


async def _play_part(part: Part, cluster: str, parent: Path, say: Say) -> Played:
    """Plays a part until a run succeeds or the tries are used up."""
    previous = None
    for attempt in range(1, TRIES + 1):
        name = part.folder_name if attempt == 1 else f"{part.folder_name}-again-{attempt}"
        played = await _make_run(part, cluster, parent / name, attempt)
        if played.why is None:
            break
        if attempt < TRIES:
            again = f"{_first_line(played.why)}, as before" if played.why == previous else played.why
            say(f"{part.title}: failed, trying again: {again}")
            previous = played.why
    return played


async def _make_run(part: Part, cluster: str, folder: Path, attempt: int) -> Played:
    began_s = time.monotonic()
    try:
        result = await carry_out(planned(options_of(part, cluster, folder), part.scenario.schedule), _silent)
        why = None if result.ended == DONE else result.ended
        if result.ended == INTERRUPTED:
            raise asyncio.CancelledError
        why = why or missed(part.scenario, result.about)
    except FloodmarkError as error:
        why = str(error)
    return Played(part=part, folder=folder, tries=attempt, seconds=time.monotonic() - began_s, why=why)


def missed(scenario: Scenario, about: Mapping[str, Any]) -> str | None:
    """Lines on the steps whose moments never came: the step in the file, and what was seen instead."""
    positions = about["missed"]
    if not positions:
        return None
    lines = sorted({scenario.lines[position] for position in positions})
    report_lines = [f"missed: {scenario.source.name} line {', '.join(map(str, lines))}"]
    for position in positions:
        report_lines.append(f"  line {scenario.lines[position]}: {scenario.written[position]}")
        report_lines += missed_moment_text(about.get("missed_words", {}).get(str(position), {}), indent=4)
    return "\n".join(harmless(line) for line in report_lines)


def options_of(part: Part, cluster: str, folder: Path) -> RunOptions:
    """The options of a part's run: a cluster without load except what the steps send."""
    scenario, row, setting = part.scenario, part.row, part.scenario.setting
    config = {**scenario.config, **systems.config_on(row.config, system_of(part.kafka))}
    if row.switches:
        config["floodmark.switches"] = ",".join(row.switches)
    return RunOptions(
        cluster=cluster,
        kafka=part.kafka,
        assignment=partitions_of(part) if setting.topics else (),
        topics={f"{TOPIC}-{key}": keys for key, keys in enumerate(row.topics) if keys},
        nodes=setting.nodes,
        rules=row.rules,
        bugs=row.bugs,
        config=tuple(f"{key}={value}" for key, value in config.items()),
        links=setting.links,
        workload=setting.workload,
        concurrency=0,
        partitions=setting.partitions,
        replication_factor=setting.replication_factor,
        acks=setting.acks,
        seed=1,
        duration=0.1,
        asked={SCENARIO: scenario.name, ROW: row.label},
        out=folder,
    )


def system_of(kafka: str | None) -> str:
    """The system's name for --kafka. A folder's version is only known when it is opened: what it cannot do is
    refused then."""
    if kafka is None:
        return systems.REFERENCE
    word = version_of(kafka) if is_image(kafka) else kafka
    return systems.KRAFT if is_version(word) and form_of(word) == "kraft" else systems.ZOOKEEPER


def partitions_of(part: Part) -> tuple[PartitionSpec, ...]:
    """A topic for each partition, all with the same replicas. Kafka's two fetcher threads get topics with
    these names alternately (AbstractFetcherManager.getFetcherId): records of one topic do not speed up the
    next one's fetches."""
    setting = part.scenario.setting
    return tuple(
        PartitionSpec(key=key, topic=f"{TOPIC}-{key}", partition=0,
                      replicas=setting.names[:setting.replication_factor])
        for key in range(setting.partitions))


def _summary(played: Played) -> str:
    again = f", repeated, {played.tries} runs" if played.tries > 1 else ""
    wrong = f": {_first_line(played.why)}" if played.why else ""
    return f"{played.part.title}: {played.seconds:.1f} s{again}{wrong}"


def _first_line(why: str) -> str:
    return why.splitlines()[0]


def _silent(_: Progress) -> None:
    """Ignores progress: of parallel runs only the ends are printed."""
