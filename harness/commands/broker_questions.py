"""Asks the broker's own program whether it would start with a config, and which rules it has.
The harness does not import the broker (only cluster/memory does), so each question is a process of its own,
asked before a cluster starts.
"""

import functools
import subprocess
import sys

import orjson

from floodmark.checkers.text.explain import EXPLANATIONS
from floodmark.harness import catalog
from floodmark.harness.errors import FloodmarkError, UsageError
from floodmark.harness.protocols import Cluster
from floodmark.harness.registered import WORKLOAD
from floodmark.nemesis.expectations import Words

_TIMEOUT_S = 30.0
_REFUSED = 2
REFERENCE = "reference"  # the name of the broker's system


def refuse_config(cluster: Cluster) -> None:
    """Raises UsageError with the broker's own sentence if it would not start. harness/broker_config.py checks
    single values; only the broker checks their combination, and bugs and switches. Other systems' settings
    are not checked."""
    if cluster.system.get("name") != REFERENCE:
        return
    for config in {tuple(sorted(keys.items())) for keys in cluster.config.values()}:
        why = _refusal(tuple(f"{key}={_value_text(value)}" for key, value in config))
        if why is not None:
            raise UsageError(f"no broker would start with these settings: {why}")


@functools.cache
def _refusal(settings: tuple[str, ...]) -> str | None:
    """The broker's reason not to start; None: it would start."""
    argv = [sys.executable, "-P", "-m", catalog.BROKER_CHECK, *settings]
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FloodmarkError(f"the broker does not say whether it would start: {error}") from error
    if ran.returncode not in (0, _REFUSED):
        raise FloodmarkError(f"the broker does not say whether it would start: {ran.stderr.strip()[-300:]}")
    return ran.stdout.strip() if ran.returncode == _REFUSED else None


def _value_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def scenario_words() -> Words:
    """The names that a scenario may use: rules, bugs and switches of the broker, workloads, findings."""
    argv = [sys.executable, "-P", "-m", catalog.BROKER_NAMES]
    try:
        ran = subprocess.run(argv, capture_output=True, timeout=_TIMEOUT_S, check=True)
        names = orjson.loads(ran.stdout)
    except (OSError, subprocess.SubprocessError, orjson.JSONDecodeError) as error:
        raise FloodmarkError(f"the broker does not say which rules it knows: {error}") from error
    return Words(
        generations=tuple(names["generations"]),
        bugs=tuple(names["bugs"]),
        switches=tuple(names["switches"]),
        workloads=catalog.names(WORKLOAD),
        findings=tuple(sorted(EXPLANATIONS)),
    )
