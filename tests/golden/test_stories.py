"""The stories of the machines come out as they are written down (`pytest --rewrite` writes them anew)."""

from pathlib import Path

import pytest
from golden_story import played

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story_comes_out_as_written(path: Path, request: pytest.FixtureRequest) -> None:
    """Every number after every RPC of a story is the one in its file."""
    text = path.read_text()
    now = played(text)
    if request.config.getoption("--rewrite"):
        path.write_text(now)
    assert path.read_text() == now


def test_there_are_stories() -> None:
    """The folder is found."""
    assert len(STORIES) >= 8
