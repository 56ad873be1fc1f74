"""Every link between the documents leads to a file, and to a heading in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def _without_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)


def _links(page: Path) -> list[tuple[str, str]]:
    """(file, anchor) of every link that is not inside code; either may be empty."""
    return LINK.findall(re.sub(r"`[^`\n]*`", "", _without_blocks(page)))


def _anchors(page: Path) -> set[str]:
    """Of the headings, as forges make them: lower case, no punctuation, hyphens for blanks."""
    headings = re.findall(r"^#+ +(.+?) *$", _without_blocks(page), re.M)
    texts = [re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


def _broken(page: Path) -> list[str]:
    broken: list[str] = []
    for name, anchor in _links(page):
        target = page.parent / name if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            broken.append(f"{name}#{anchor}" if anchor else name)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    assert _broken(page) == []


def test_broken_links_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("## Who, `what`: [why](x.md)?\n```\n# not a heading\n```\n")
    good = "[a](other.md) [b](other.md#who-what-why) [c](#here) [d](https://example.org/#x) `[e](nowhere.md)`"
    bad = "[f](other.md#not-a-heading) [g](nowhere.md) [h](#there) ![i](picture.png)"
    (page := tmp_path / "page.md").write_text(f"# Here\n{good}\n{bad}\n")
    assert _broken(page) == ["other.md#not-a-heading", "nowhere.md", "#there", "picture.png"]


def test_links_are_found() -> None:
    assert len(_links(ROOT / "docs" / "index.md")) > 10
