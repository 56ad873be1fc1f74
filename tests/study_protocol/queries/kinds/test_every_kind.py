"""A new kind of question is known wherever kinds are listed by name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from study_protocol.queries.kinds import Question
from tests.factories.questions import EXAMPLES

WORDS = Path(__file__).parents[4] / "server" / "web" / "static" / "words.js"


def kinds() -> set[str]:
    return {get_args(kind.model_fields["kind"].annotation)[0] for kind in get_args(get_args(Question)[0])}


def test_every_kind_has_an_example_for_the_tests_of_all_kinds() -> None:
    assert set(EXAMPLES) == kinds()


def test_every_kind_has_a_name_on_the_dashboard() -> None:
    (names,) = re.findall(r"const QUERY_KINDS = \{(.*?)\n\};", WORDS.read_text(encoding="utf-8"), re.S)
    assert set(re.findall(r'(?:^|[ ,\n])"?([a-z-]+)"?: "', names)) == kinds()
