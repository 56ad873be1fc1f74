"""What a secure sum promises, in sentences."""

from __future__ import annotations

import pytest

from study_protocol.secure_sum.promises import sums
from study_protocol.study.masking import Masking
from tests.factories.settings import MASKING


@pytest.mark.parametrize(
    ("neighbours", "line"),
    [
        (None, "all others: (n + c) // 2 + 1 of a round's n hospitals rebuild one"),
        (60, "60 neighbours on a ring: 39 of these 61 rebuild one"),
        (60, "nothing where more than 22 of a hospital and its 60 neighbours are lost, or fewer than (n + c)"),
        (60, "no sum is opened that 15 of its hospitals could take apart"),
        (None, "158 hospitals at least are in every sum; c = 15 may side with the coordinator, 143 then do not"),
    ],
    ids=["all: threshold", "ring: threshold", "ring: losses", "ring: no cut", "all: in every sum"],
)
def test_what_the_masks_of_a_study_promise_is_said_in_words(neighbours: int | None, line: str) -> None:
    masking = Masking(**MASKING | {"colluders": 15, "min_survivors": 158, "neighbours": neighbours})
    assert any(line in said for said in sums(masking))
    assert any("ring" in said for said in sums(masking)) == (neighbours is not None)
    assert sums(None) == []


def test_a_threshold_is_more_than_half_of_what_colluders_leave() -> None:
    """Of 9 who share on a ring of 8 neighbours with 2 colluders: (9 + 2) // 2 + 1 = 6, and (8 - 2) // 2 = 3 may go."""
    said = sums(Masking(**MASKING | {"colluders": 2, "min_survivors": 5, "neighbours": 8}))
    assert "each shares two secrets with 8 neighbours on a ring: 6 of these 9 rebuild one" in said[1]
    assert any("nothing where more than 3 of a hospital and its 8 neighbours are lost" in line for line in said)
    assert said[-1].startswith("not promised: that a round ends")
