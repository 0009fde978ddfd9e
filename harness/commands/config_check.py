"""Whether the brokers would serve what they are to be set to, asked before anything is started."""

import functools
import subprocess
import sys

from harness import catalog
from harness.errors import FloodmarkError, UsageError
from harness.protocols import Cluster

_TIMEOUT_S = 30.0
_REFUSED = 2


def refuse_config(cluster: Cluster) -> None:
    """UsageError with the broker's own sentence. harness/broker_config.py has looked at single values;
    what fits together, and which bugs and switches there are, the broker alone knows."""
    for config in {tuple(sorted(keys.items())) for keys in cluster.config.values()}:
        why = _why_not(tuple(f"{key}={_word(value)}" for key, value in config))
        if why is not None:
            raise UsageError(f"no broker would start with these settings: {why}")


@functools.cache
def _why_not(settings: tuple[str, ...]) -> str | None:
    """Asks the broker that would be run; whoever tests it does not import it."""
    argv = [sys.executable, "-P", "-m", catalog.BROKER_CHECK, *settings]
    try:
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FloodmarkError(f"the broker does not say whether it would start: {error}") from error
    if ran.returncode not in (0, _REFUSED):
        raise FloodmarkError(f"the broker does not say whether it would start: {ran.stderr.strip()[-300:]}")
    return ran.stdout.strip() if ran.returncode == _REFUSED else None


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
