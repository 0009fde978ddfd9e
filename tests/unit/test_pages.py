"""The project's pages: every linked file exists; the README's pictures are small, and in light and dark."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from readme import README, ROOT

PICTURES = ROOT / "histories" / "pictures"
FILES = sorted(PICTURES.glob("*.svg"))
BYTES_AT_MOST = 60_000
SVG = "{http://www.w3.org/2000/svg}"


FOLDERS = ("checkers", "docker", "harness", "histories", "nemesis")
PAGES = sorted([*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))])
_LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_linked_file_exists(page: Path) -> None:
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_shows_each_picture_in_light_and_dark() -> None:
    text = README.read_text(encoding="utf-8")
    shown = set(re.findall(r'histories/pictures/([\w-]+\.svg)', text))

    assert shown == {path.name for path in FILES}
    assert {name.replace("-light", "-dark") for name in shown if "light" in name} == {
        name for name in shown if "dark" in name}
    pairs = r'<picture>\n  <source media=.* srcset=.*-dark\.svg">\n  <img src=.* alt="\w'
    assert len(re.findall(pairs, text)) == 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_picture_is_small_and_loads_nothing(path: Path) -> None:
    picture = path.read_text(encoding="utf-8")

    assert len(picture.encode()) < BYTES_AT_MOST
    root = ElementTree.fromstring(picture)
    assert {one.tag for one in root.iter()} & {f"{SVG}script", f"{SVG}image", f"{SVG}foreignObject"} == set()
    names = {name for one in root.iter() for name in one.attrib}
    assert not [name for name in names if name.endswith("href") or name.startswith("on")]
    assert "url(http" not in picture
    assert "@import" not in picture
