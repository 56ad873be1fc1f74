"""The table of steps within a limit: our rules and the other accountant agree."""

from __future__ import annotations

import pytest

from research.enforcement.table import row


def test_both_accountants_allow_the_demonstration_36_steps() -> None:
    found = row(1.0, 10.43, 2.0, 1e-4)
    assert (found.renyi, found.peer_renyi, found.tight, found.peer_losses) == (30, 30, 36, 36)
    assert found.gain == pytest.approx(0.2)
    assert found.rule == "gaussian-filter"


@pytest.mark.slow
def test_both_accountants_agree_where_records_are_sampled() -> None:
    found = row(0.1, 2.0, 1.0, 1e-5)
    assert (found.renyi, found.peer_renyi, found.tight, found.peer_losses) == (11, 11, 16, 16)
    assert found.rule == "fixed-plan"
