"""Asks the broker's own program whether it would start with a config, and which rules it has.
The harness does not import the broker (only cluster/simulated does), so each question is a process of its
own, asked before a cluster starts. No question about the same settings is asked twice.
"""

import functools
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from floodmark.checkers.text.explain import EXPLANATIONS
from floodmark.harness import catalog
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import Cluster, Simulates, ability
from floodmark.harness.registered import WORKLOAD
from floodmark.nemesis.expectations import Words

_TIMEOUT_S = 30.0
REFERENCE = "reference"  # the name of the broker's system

Settings = tuple[str, ...]  # KEY=VALUE of one broker

_refusals: dict[Settings, str | None] = {}  # the answers so far


def refuse_config(cluster: Cluster) -> None:
    """Raises UsageError with the broker's own sentence if it would not start. harness/broker_config.py checks
    single values; only the broker checks their combination, and bugs and switches. Other systems' settings
    are not checked."""
    ask = _refusal if ability(cluster, Simulates) is None else catalog.broker_refusal
    for settings in _settings_of(cluster):
        why = ask(settings)
        if why is not None:
            raise UsageError(f"no broker would start with these settings: {why}")


def refuse_configs(clusters: Sequence[tuple[str, Cluster]]) -> None:
    """The same for many clusters, with one process for all of them. Each comes with the words with which its
    error begins."""
    every = dict.fromkeys(settings for _, cluster in clusters for settings in _settings_of(cluster))
    unknown = [settings for settings in every if settings not in _refusals]
    if unknown:
        _refusals.update(zip(unknown, _ask(unknown), strict=True))
    for words, cluster in clusters:
        try:
            refuse_config(cluster)
        except UsageError as error:
            raise UsageError(f"{words}: {error}") from error


def _settings_of(cluster: Cluster) -> set[Settings]:
    """What the brokers are started with; nothing if they are not ours."""
    if cluster.system.get("name") != REFERENCE:
        return set()
    return {tuple(f"{key}={_value_text(value)}" for key, value in sorted(keys.items()))
            for keys in cluster.config.values()}


def _refusal(settings: Settings) -> str | None:
    """The broker's reason not to start; None: it would start."""
    if settings not in _refusals:
        _refusals[settings], = _ask([settings])
    return _refusals[settings]


def _ask(questions: Sequence[Settings]) -> list[str | None]:
    """The broker's reason for each of these settings."""
    return list(_answer("whether it would start", catalog.BROKER_CHECK, "--many", about=questions))


def _answer(what: str, program: str, *words: str, about: Any = None) -> Any:
    """What this program of the broker prints."""
    try:
        ran = subprocess.run([sys.executable, "-P", "-m", program, *words], input=orjson.dumps(about),
                             capture_output=True, timeout=_TIMEOUT_S, check=False)
        if ran.returncode == 0:
            return orjson.loads(ran.stdout)
        why = ran.stderr.decode(errors="replace").strip()[-300:]
    except (OSError, subprocess.TimeoutExpired, orjson.JSONDecodeError) as error:
        why = str(error)
    raise FloodmarkError(f"the broker does not say {what}: {why}")


def _value_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@functools.cache
def _broker_names() -> Mapping[str, Sequence[str]]:
    return dict(_answer("which rules it knows", catalog.BROKER_NAMES))


def scenario_words() -> Words:
    """The names that a scenario may use: rules, bugs and switches of the broker, workloads, findings."""
    names = {kind: tuple(each) for kind, each in _broker_names().items()}
    return Words(**names, workloads=catalog.names(WORKLOAD), findings=tuple(sorted(EXPLANATIONS)))
