"""What a scenario may name: rules, bugs and switches as the broker knows them, workloads, findings."""

import subprocess
import sys

import orjson

from checkers.text.explain import EXPLANATIONS
from harness import catalog
from harness.errors import FloodmarkError
from nemesis.expectations import Words

_TIMEOUT_S = 30.0


def words() -> Words:
    """Asks the broker that would be run; whoever tests it does not import it."""
    argv = [sys.executable, "-P", "-m", catalog.BROKER_WORDS]
    try:
        ran = subprocess.run(argv, capture_output=True, timeout=_TIMEOUT_S, check=True)
        told = orjson.loads(ran.stdout)
    except (OSError, subprocess.SubprocessError, orjson.JSONDecodeError) as error:
        raise FloodmarkError(f"the broker does not say which rules it knows: {error}") from error
    return Words(
        generations=tuple(told["generations"]),
        bugs=tuple(told["bugs"]),
        switches=tuple(told["switches"]),
        workloads=tuple(sorted(catalog.WORKLOADS)),
        findings=tuple(sorted(EXPLANATIONS)),
    )
