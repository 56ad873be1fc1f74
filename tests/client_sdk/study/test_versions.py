"""Before anything is charged a hospital knows whether it and the coordinator speak what the study needs."""

from __future__ import annotations

import re

import pytest

from client_sdk.api.spoken import Spoken
from client_sdk.errors import ConfigurationError, InvalidRequestError
from client_sdk.study.versions import joined_with, refused_by_older, require_compatible
from study_protocol.study.messages import Problem
from study_protocol.versions import PROTOCOL, UNNUMBERED
from tests.harness import tiny

CLEAR = tiny.settings("parallel", clients=4, rounds=2, bayesian=False)
MASKED = tiny.settings("sequential", clients=4, rounds=2, bayesian=False, step_seconds=60.0)
OLD = Spoken()
NEW = Spoken("9.9", PROTOCOL, PROTOCOL)


def test_a_hospital_keeps_to_what_the_study_needed_when_it_joined() -> None:
    assert joined_with(None, CLEAR) == UNNUMBERED
    assert joined_with(None, MASKED) == 2
    # Joined with a version that wrote no number down.
    assert joined_with({"client": "north"}, MASKED) == UNNUMBERED
    assert joined_with({"protocol": 2}, MASKED) == 2


@pytest.mark.parametrize("spoken", [OLD, NEW, Spoken("9.9", 17, 1)])
def test_what_a_study_in_the_clear_needs_everybody_speaks(spoken: Spoken) -> None:
    require_compatible(spoken, joined_with(None, CLEAR), CLEAR)


def test_a_study_that_an_older_version_began_goes_on_for_who_took_part() -> None:
    require_compatible(OLD, joined_with({}, MASKED), MASKED)
    require_compatible(Spoken("9.9", PROTOCOL, UNNUMBERED), joined_with({}, MASKED), MASKED)


@pytest.mark.parametrize(
    ("spoken", "said"),
    [
        (OLD, "the coordinator (version unknown) speaks number 1: its operator has to install a newer version"),
        (Spoken("9.9", PROTOCOL, UNNUMBERED), "the study was created by an older version"),
        (Spoken("9.9", 17, 17), "install the coordinator's version (9.9) or a newer one"),
    ],
    ids=["coordinator", "study", "hospital"],
)
def test_what_is_too_old_is_named_with_what_to_install(spoken: Spoken, said: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(said)) as refused:
        require_compatible(spoken, joined_with(None, MASKED), MASKED)
    assert "Nothing was charged or sent" in str(refused.value)


@pytest.mark.parametrize(("code", "is_older"), [("invalid-request", True), ("whole-plan-overspends", False)])
def test_only_settings_that_were_not_read_may_need_a_newer_coordinator(code: str, is_older: bool) -> None:
    refused = InvalidRequestError(Problem(type="", title="", status=422, code=code, detail="no", request_id=""))
    said = str(refused_by_older(refused, MASKED))
    assert ("ask for this version" in said) == is_older
