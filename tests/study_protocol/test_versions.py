from __future__ import annotations

import pytest

from study_protocol import versions
from study_protocol.versions import (
    PROTOCOL,
    REQUIREMENTS,
    UNNUMBERED,
    Requirement,
    is_protocol,
    is_version,
    min_protocol,
    needed_for,
    program_version,
    protocol_in,
)
from tests.harness import tiny

CLEAR = tiny.settings("parallel", clients=4, rounds=2, bayesian=False).as_json()
MASKED = tiny.settings("sequential", clients=4, rounds=2, bayesian=False, step_seconds=60.0).as_json()


def test_a_study_needs_the_number_of_what_it_uses() -> None:
    assert min_protocol(CLEAR) == UNNUMBERED
    assert min_protocol(MASKED) == 2
    assert needed_for(CLEAR, UNNUMBERED) == []
    assert needed_for(MASKED, UNNUMBERED) == ["sums under masks"]
    assert needed_for(MASKED, 2) == []


@pytest.mark.parametrize("rule", ["fixed-plan", "renyi-order"])
def test_a_limit_that_names_its_rule_needs_programs_that_know_it(rule: str) -> None:
    limit = {"level": "instance", "definition": "classical", "epsilon": 20.0, "delta": 1e-3, "enforcement": rule}
    named = tiny.settings("parallel", clients=4, rounds=2, bayesian=False, limits=[limit]).as_json()
    assert needed_for(named, 2) == ["a named rule for a limit (enforcement)"]
    assert min_protocol(named) == 3
    asking = named | {"statistics": {"share": 0.2}}
    assert needed_for(asking, 2)[1:] == ["a share of the budget for questions"]


def test_of_several_requirements_the_largest_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    more = Requirement(7, "something new", lambda settings: settings["schedule"]["min_clients"] == 4)
    monkeypatch.setattr(versions, "REQUIREMENTS", (*REQUIREMENTS, more))
    assert min_protocol(CLEAR) == min_protocol(MASKED) == 7
    assert needed_for(MASKED, UNNUMBERED) == ["sums under masks", "something new"]


def test_no_requirement_is_of_a_number_that_nobody_speaks() -> None:
    assert all(UNNUMBERED < one.protocol <= PROTOCOL for one in REQUIREMENTS)


@pytest.mark.parametrize(
    "text", [None, "", "x", "-1", "0", pytest.param("²", id="superscript"), " 2", "2 ", "1.0", "99999999", "0x2"]
)
def test_a_header_that_says_no_number_is_one_from_before_numbers(text: str | None) -> None:
    assert protocol_in(text) == UNNUMBERED


def test_a_header_says_a_number() -> None:
    assert [protocol_in(text) for text in ("1", "2", "17")] == [1, 2, 17]


def test_what_is_a_number_and_a_version() -> None:
    assert not any(is_protocol(value) for value in (True, 0, -1, 1.0, "2", None, 10**9))
    assert is_version(program_version())
    assert not any(is_version(value) for value in ("", "a b", "1.0\n", "x" * 65, 1, None, "<b>"))


def test_proximal_steps_need_programs_that_take_them() -> None:
    drawn_back = CLEAR | {"training": CLEAR["training"] | {"proximal": 0.1}}
    assert min_protocol(CLEAR) < versions.PROXIMAL_STEPS == min_protocol(drawn_back)
    assert needed_for(drawn_back, 3) == ["local steps that are drawn back (training.proximal)"]


def test_an_audit_s_digest_needs_programs_that_can_read_it() -> None:
    assert min_protocol(CLEAR) < versions.MARGINALS == min_protocol(CLEAR | {"audit_sha256": "ab" * 32})


def test_an_additive_model_needs_programs_that_have_the_task() -> None:
    training = CLEAR["training"] | {"task": "additive"}
    assert min_protocol(CLEAR | {"training": training}) == versions.ADDITIVE_MODELS
