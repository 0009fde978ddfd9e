"""What `floodmark cluster up` is made from: the options turned into a cluster, made but not started."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import catalog
from harness.commands.cluster import up
from harness.commands.config_check import refuse_config
from harness.commands.run import pairs
from harness.run import refuse_full


def bring_up(
    out: Path | None,
    *,
    first_port: int | None,
    cluster: str,
    nodes: int,
    rules: str,
    bugs: Sequence[str],
    config: tuple[str, ...],
    links: str | None,
) -> int:
    """Runs until Ctrl-C. Links are proxied unless said otherwise: what is up to be played with can be cut."""
    made: dict[str, Any] = {
        "rules": rules,
        "bugs": bugs,
        "config": pairs(config),
        "links": links or "proxied",
        "trace": False,  # nobody judges it, and it may be up for long
    }
    if out is not None:
        refuse_full(out)
        return _up(cluster, out, nodes, first_port, made)
    with tempfile.TemporaryDirectory(prefix="floodmark-", ignore_cleanup_errors=True) as folder:
        return _up(cluster, Path(folder), nodes, first_port, made)


def _up(cluster: str, folder: Path, nodes: int, first_port: int | None, made: Mapping[str, Any]) -> int:
    brought = catalog.cluster(cluster, folder, nodes, first_port=first_port, **made)
    refuse_config(brought)
    return up(brought, folder)
