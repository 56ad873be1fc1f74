"""Programs that are too old for a study are told what to install; others are let in without a word."""

from __future__ import annotations

import pytest

from server.domain.errors import Rejected
from server.domain.versions import require_spoken
from study_protocol.versions import PROTOCOL, ProgramVersion, program_version


@pytest.mark.parametrize(("needed", "spoken"), [(1, 1), (1, 2), (0, 0)])
def test_who_speaks_the_number_or_a_later_one_is_let_in(needed: int, spoken: int) -> None:
    require_spoken(needed, ProgramVersion("0.1", spoken))


def test_who_speaks_an_earlier_one_is_told_both_numbers_and_what_to_install() -> None:
    with pytest.raises(Rejected) as refused:
        require_spoken(3, ProgramVersion("0.7.1", 2))
    assert refused.value.code == "client-too-old"
    assert refused.value.extra == {
        "needed_protocol": 3,
        "spoken_protocol": 2,
        "coordinator_protocol": PROTOCOL,
        "coordinator_version": program_version(),
    }
    for said in ("number 3", "number 2", "version 0.7.1", f"runs ({program_version()})", "no data is lost"):
        assert said in refused.value.detail
