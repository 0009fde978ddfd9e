"""What `floodmark cluster up` is made from: the options turned into a cluster, made but not started."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import catalog
from harness.commands.cluster import up
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
        return up(catalog.cluster(cluster, out, nodes, first_port=first_port, **made), out)
    with tempfile.TemporaryDirectory(prefix="floodmark-", ignore_cleanup_errors=True) as folder:
        return up(catalog.cluster(cluster, Path(folder), nodes, first_port=first_port, **made), Path(folder))
