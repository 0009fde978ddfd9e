"""A user's folder with packages that are called harness, broker, ... as ours are: an import of one fails."""

import os
from pathlib import Path

OURS = ("harness", "nemesis", "checkers", "workloads", "broker")
COMPLAINT = "of the user was imported"


def planted(folder: Path) -> dict[str, str]:
    """Writes them there; an environment in which the folder that a process is called from is first on its
    path."""
    for name in OURS:
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text(f"raise SystemExit('{name} {COMPLAINT}')\n")
    return {**os.environ, "PYTHONPATH": "."}
