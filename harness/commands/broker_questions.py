"""Asks the broker's own program whether it would start with a config, and which rules it has.
The harness does not import the broker (only cluster/simulated does), so each question is a process of its
own, asked before a cluster starts. No question about the same settings is asked twice.
"""

import functools
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import orjson

from floodmark.checkers.text.explain import EXPLANATIONS
from floodmark.harness import catalog
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import Cluster, Simulates, ability
from floodmark.harness.registered import WORKLOAD
from floodmark.nemesis.scenario import Words

_TIMEOUT_S = 30.0
REFERENCE = "reference"  # the name of the broker's system

Settings = tuple[str, ...]  # KEY=VALUE of one broker

_refusals: dict[Settings, str | None] = {}  # the answers so far


def refuse_config(cluster: Cluster) -> None:
    """Raises UsageError with the broker's own sentence if it would not start. broker_config.py checks single
    values; only the broker their combination, bugs and switches. Other systems' settings are not checked."""
    refuse_configs([("", cluster)])


def refuse_configs(clusters: Sequence[tuple[str, Cluster]]) -> None:
    """The same for many clusters, by one process. Each comes with the words with which its error begins."""
    every = {settings: cluster for _, cluster in clusters for settings in _settings_of(cluster)
             if settings not in _refusals}
    for settings, cluster in every.items():
        if ability(cluster, Simulates) is not None:
            _refusals[settings] = catalog.broker_refusal(settings)
    if unknown := [settings for settings in every if settings not in _refusals]:
        why = _answer("whether it would start", catalog.BROKER_CHECK, "--many", about=unknown)
        _refusals.update(zip(unknown, why, strict=True))
    for words, cluster in clusters:
        for why in filter(None, map(_refusals.get, _settings_of(cluster))):
            raise UsageError(f"{words and f'{words}: '}no broker would start with these settings: {why}")


def _settings_of(cluster: Cluster) -> set[Settings]:
    """What the brokers are started with; nothing if they are not ours."""
    if cluster.system.get("name") != REFERENCE:
        return set()
    return {tuple(f"{key}={str(value).lower() if isinstance(value, bool) else value}"
                  for key, value in sorted(keys.items()))
            for keys in cluster.config.values()}


def _answer(what: str, program: str, *words: str, about: Any = None) -> Any:
    try:
        ran = subprocess.run([sys.executable, "-P", "-m", program, *words], input=orjson.dumps(about),
                             capture_output=True, timeout=_TIMEOUT_S, check=False)
        if ran.returncode == 0:
            return orjson.loads(ran.stdout)
        why = ran.stderr.decode(errors="replace").strip()[-300:]
    except (OSError, subprocess.TimeoutExpired, orjson.JSONDecodeError) as error:
        why = str(error)
    raise FloodmarkError(f"the broker does not say {what}: {why}")


@functools.cache
def scenario_words() -> Words:
    """The names that a scenario may use: rules, bugs and switches of the broker, workloads, findings."""
    answer = _answer("which rules it knows", catalog.BROKER_NAMES)
    names = {kind: tuple(each) for kind, each in answer.items()}
    return Words(**names, workloads=catalog.names(WORKLOAD), findings=tuple(sorted(EXPLANATIONS)))
