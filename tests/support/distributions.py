"""Writes a distribution of another author that brings checks, as pip would install it."""

from collections.abc import Mapping
from pathlib import Path

MODULE = "somebodys_checks"


def distribution(root: Path, code: str, checks: Mapping[str, str], *, name: str = "somebodys") -> Path:
    """Writes the distribution with a module of this code; returns a folder for sys.path. checks: name ->
    attribute."""
    root.mkdir(exist_ok=True)
    (root / f"{MODULE}.py").write_text(code)
    info = root / f"{name}-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.3\n")
    points = [f"{check} = {MODULE}:{attribute}" for check, attribute in checks.items()]
    (info / "entry_points.txt").write_text("\n".join(["[floodmark.checks]", *points, ""]))
    return root
