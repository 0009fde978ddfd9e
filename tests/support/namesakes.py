"""A user's folder with packages named harness, broker, ... as ours are: an import of one of them fails."""

import os
from pathlib import Path

OURS = ("harness", "nemesis", "checkers", "workloads", "broker")
COMPLAINT = "of the user was imported"


def planted(folder: Path) -> dict[str, str]:
    """Writes the packages there; returns an environment in which a process has its working folder first on
    its path."""
    for name in OURS:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text(f"raise SystemExit('{name} {COMPLAINT}')\n")
    return {**os.environ, "PYTHONPATH": "."}
