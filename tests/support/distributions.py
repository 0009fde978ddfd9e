"""A distribution of somebody else's that brings checks, as pip would leave it."""

from collections.abc import Mapping
from pathlib import Path

MODULE = "somebodys_checks"


def distribution(root: Path, code: str, checks: Mapping[str, str], *, name: str = "somebodys") -> Path:
    """Root, which is to stand on sys.path, with a module of this code. checks: name -> its attribute."""
    root.mkdir(exist_ok=True)
    (root / f"{MODULE}.py").write_text(code)
    info = root / f"{name}-0.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.3\n")
    points = [f"{check} = {MODULE}:{attribute}" for check, attribute in checks.items()]
    (info / "entry_points.txt").write_text("\n".join(["[floodmark.checks]", *points, ""]))
    return root
