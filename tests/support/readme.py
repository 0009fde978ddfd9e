"""Blocks of the README, as they stand there."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def block(first_line: str) -> str:
    """The fenced block that begins with this line."""
    found = re.findall(r"^```\w+\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (one,) = [text for text in found if text.partition("\n")[0] == first_line]
    return str(one)
