"""Whether somebody else speaks for a hospital, as a process of it can tell."""

from __future__ import annotations

import pytest

from client_sdk.errors import SessionEnded, UpdateDisputed
from client_sdk.study.single_installation import SingleInstallation


def test_a_message_of_somebody_else_is_certain_in_every_round_but_the_first() -> None:
    alone, other = SingleInstallation(), SessionEnded("different-message")
    alone.begin(7)
    # As after the folder was put back to an older copy in the midst of this round.
    alone.require(7, other)
    alone.begin(8)
    alone.require(8, SessionEnded("too-few-keys"))
    alone.require(7, other)
    with pytest.raises(UpdateDisputed, match="a second installation"):
        alone.require(8, other)


def test_a_session_that_ended_so_says_what_may_be_the_cause() -> None:
    assert "a second installation" in str(SessionEnded("different-message"))
    assert "a second installation" not in str(SessionEnded("too-few-keys"))
