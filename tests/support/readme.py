"""Finds fenced blocks of the project's pages."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
CAMPAIGNS = ROOT / "harness" / "campaign" / "README.md"


def block(first_line: str, page: Path = CAMPAIGNS) -> str:
    """The fenced block of that page that begins with this line."""
    found = re.findall(r"^```\w+\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    (one,) = [text for text in found if text.partition("\n")[0] == first_line]
    return str(one)
