"""Four doors: README, index, navigation and `wardround --help` have the same roles. A hospital's path is short."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from wardround.cli.commands import ROLES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
INDEX = (DOCS / "index.md").read_text()
README = (ROOT / "README.md").read_text()
PAGES, WORDS = 4, 5_000
# What a person at a hospital does, from an empty machine to leaving: each stands on the path.
STEPS = (
    "pip install 'wardround[client]'",
    "wardround data check",
    "wardround enrol",
    "wardround policy template",
    "wardround doctor",
    "wardround roster show",
    "wardround roster pin",
    "wardround join",
    "wardround query approve",
    "wardround own-budget",
    "wardround egress-log",
    "wardround study model",
    "wardround predict",
    "wardround withdraw",
)


def _path() -> list[str]:
    """Return the pages of the first table behind the door of hospitals."""
    section = INDEX.partition("## Take part as a hospital\n")[2].partition("\n## ")[0]
    table = section.partition("| page |")[2].partition("\n\n")[0]
    return re.findall(r"^\| \[[^\]]+\]\(([\w-]+\.md)\)", table, re.M)


def test_the_index_the_navigation_and_the_help_have_the_same_doors() -> None:
    sections = re.findall(r"^## (.+)$", INDEX, re.M)
    navigation: list[dict[str, Any]] = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=yaml.BaseLoader)["nav"]
    groups = [name for part in navigation for name in part]
    assert sections == [*ROLES, "The project"]
    assert groups == ["Home", *ROLES, "The project"]


def test_the_readme_has_the_doors_and_the_picture_on_its_first_screen() -> None:
    first = README.partition("\n## ")[0]
    assert "how-it-works.svg" in first
    assert {"make demo", "make test"} <= set(re.findall(r"^(make \w+)", first, re.M))
    assert "over 20 seeds" in first.lower().replace("\n", " ")
    assert [name.capitalize() for name in re.findall(r"^\| \*\*(.+?)\*\* \|", first, re.M)] == list(ROLES)
    assert "docs/figures/certificate.png" in first


def test_the_path_of_a_hospital_is_short() -> None:
    words = {page: len((DOCS / page).read_bytes().split()) for page in _path()}
    assert 1 < len(words) <= PAGES
    assert sum(words.values()) <= WORDS, words


def test_the_path_names_its_pages_in_the_first_sentences() -> None:
    first = _path()[0]
    begin = (DOCS / first).read_text().partition("\n## ")[0]
    assert [page for page in _path() if f"({page})" not in begin] == [first]


@pytest.mark.parametrize("step", STEPS)
def test_every_step_of_taking_part_stands_on_the_path(step: str) -> None:
    assert any(step in (DOCS / page).read_text() for page in _path())


def test_the_readme_s_spread_is_that_of_the_demonstration_s_page() -> None:
    row = re.search(
        r"^\| by size of tumour, as shown \| 2 \| ([\d.]+) \(([\d.]+)\)", (DOCS / "demo.md").read_text(), re.M
    )
    assert row is not None
    spread = re.search(r"reached ([\d.]+), with a standard deviation of ([\d.]+)\.", README.replace("\n", " "))
    assert spread is not None
    assert spread.groups() == row.groups()
