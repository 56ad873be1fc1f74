"""The glossary names every scheme, and explains each word once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from accounting.plan.schemes import SCHEMES

GLOSSARY = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_has_its_plain_title(scheme: str) -> None:
    (row,) = re.findall(rf"^\| `{scheme}` \| ([^|]+) \|", GLOSSARY, re.M)
    assert row == SCHEMES[scheme].title


def test_every_word_is_explained_once() -> None:
    words = [word.strip().lower() for word in re.findall(r"^\| ([^|]+) \|", GLOSSARY, re.M)]
    words = [word for word in words if word not in ("word", "id") and set(word) - {"-"}]
    assert len(words) > 50
    assert len(set(words)) == len(words)
