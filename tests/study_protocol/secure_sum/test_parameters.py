"""The one builder of masked sessions: whatever settings are accepted can open one, whatever is refused could not."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import pytest
from pydantic import ValidationError

from study_protocol.secure_sum.messages import Deadlines, ParameterFault, SessionParameters, require_sound
from study_protocol.secure_sum.parameters import SessionPlan
from study_protocol.study.masking import MAX_CLIENTS, Masking
from study_protocol.study.settings import StudySettings
from tests.factories.settings import settings as study_settings
from tests.study_protocol.study.test_privacy import MASKING, masked

MODEL = {"bias": ((2,), "float32"), "weight": ((3, 2), "float32")}
GRID = [
    (clients, colluders, min_survivors, allow_three)
    for clients in range(3, 13)
    for colluders in range(1, 7)
    for min_survivors in range(3, 13)
    for allow_three in (False, True)
]


def settings(clients: int, colluders: int, min_survivors: int, allow_three: bool) -> StudySettings:
    masking = MASKING | {"colluders": colluders, "min_survivors": min_survivors, "allow_three": allow_three}
    return StudySettings.model_validate(masked("parallel", min_clients=clients, masking=masking))


def session_plan(chosen: StudySettings, **changes: str) -> SessionPlan:
    names: dict[str, Any] = {"study": "sepsis", "roster": "0a" * 32, "model": "0b" * 32} | changes
    return SessionPlan.of(chosen, MODEL, round_number=1, ledger=(2, "0c" * 32), **names)


@cache
def sound(clients: int, colluders: int, threshold: int, survivors: int) -> bool:
    """By the rules that coordinator and hospital apply to parameters that anybody wrote."""
    parameters = SessionParameters(
        study="sepsis",
        round=1,
        session=bytes(32),
        roster="0a" * 32,
        settings="0d" * 32,
        ledger_entries=2,
        ledger_sha256="0c" * 32,
        model="0b" * 32,
        clients=clients,
        colluders=colluders,
        threshold=threshold,
        neighbours=clients - 1,
        min_survivors=survivors,
        vectors=SPECS,
        deadlines=Deadlines(keys=1, shares=2, masked=3),
        expires=4,
    )
    try:
        require_sound(parameters)
    except ParameterFault:
        return False
    return True


def opens(clients: int, colluders: int, min_survivors: int, allow_three: bool) -> bool:
    """Over every threshold: a session of so many clients whose hospitals go along, in a study some session of which
    may have exactly the survivors it promises."""

    def any_sound(n: int, survivors: range) -> bool:
        thresholds = range(2, n + 1)
        return (n > 3 or allow_three) and any(sound(n, colluders, t, s) for t in thresholds for s in survivors)

    promised = any(any_sound(n, range(min_survivors, min_survivors + 1)) for n in range(min_survivors, 14))
    return promised and any_sound(clients, range(min_survivors, clients + 1))


SPECS = session_plan(settings(4, 1, 4, False)).vectors(14)


def test_settings_are_accepted_exactly_where_a_session_can_be_opened() -> None:
    accepted = 0
    for point in GRID:
        try:
            chosen = settings(*point)
        except ValidationError:
            assert not opens(*point), point
            continue
        assert opens(*point), point
        # Every number of hospitals that a round may begin with, not only the least.
        for clients in range(point[0], 15):
            made = session_plan(chosen).parameters(clients, session=bytes(32), now=0.5)
            require_sound(made)
            assert made.min_survivors >= point[2]
        accepted += 1
    assert 0 < accepted < len(GRID)


def test_a_refusal_names_the_field_and_the_least_value_that_works() -> None:
    refused = 0
    for point in GRID:
        try:
            settings(*point)
            continue
        except ValidationError as error:
            said = re.search(r"(min_survivors|min_clients) must be at least (?:min_survivors, )?(\d+)", str(error))
        assert said is not None, point
        name, least = said[1], int(said[2])
        clients, colluders, survivors, three = point
        better = {
            "min_survivors": (max(clients, least), colluders, least, three),
            "min_clients": (least, colluders, survivors, three),
        }[name]
        settings(*better)
        worse = {
            "min_survivors": (max(clients, least), colluders, least - 1, three),
            "min_clients": (least - 1, colluders, survivors, three),
        }[name]
        with pytest.raises(ValidationError):
            settings(*worse)
        refused += 1
    assert refused


def test_four_hospitals_that_would_abandon_every_round_are_refused() -> None:
    with pytest.raises(ValidationError, match="min_survivors must be at least 5"):
        settings(4, 2, 4, True)


@pytest.mark.parametrize(
    ("name", "most"), [("min_survivors", MAX_CLIENTS), ("colluders", MAX_CLIENTS - 3), ("clients", MAX_CLIENTS)]
)
def test_no_session_has_more_than_a_thousand_clients(name, most) -> None:
    values = {"clients": most, "colluders": 1, "min_survivors": 4}
    if name != "clients":
        values |= {name: most, "min_survivors": MAX_CLIENTS}
    values["clients"] = MAX_CLIENTS
    made = session_plan(settings(**values, allow_three=False)).parameters(MAX_CLIENTS, session=bytes(32), now=0.0)
    assert made.clients == MAX_CLIENTS
    with pytest.raises(ValidationError, match=str(most)):
        settings(**values | {name: most + 1}, allow_three=False)


@pytest.mark.parametrize(
    ("clients", "code"),
    [(0, "too-few-clients"), (2, "too-few-clients"), (3, "unreachable-threshold"), (1001, "too-many-clients")],
)
def test_a_cohort_that_cannot_reach_its_survivors_has_no_session(clients, code) -> None:
    with pytest.raises(ParameterFault) as fault:
        session_plan(settings(4, 1, 4, False)).parameters(clients, session=bytes(32), now=0.0)
    assert fault.value.code == code


def test_a_scale_that_the_masks_cannot_bear_is_named() -> None:
    wide = masked("parallel", noise_multiplier=1e30)
    with pytest.raises(ParameterFault, match="clip_norm or noise_multiplier") as fault:
        session_plan(StudySettings.model_validate(wide)).parameters(4, session=bytes(32), now=0.0)
    assert fault.value.code == "unsound-vector"


def test_times_follow_one_another_with_training_between_shares_and_vectors() -> None:
    chosen = settings(4, 1, 4, False)
    made = session_plan(chosen).parameters(5, session=bytes(range(32)), now=1000.25)
    masking = chosen.privacy.masking
    assert isinstance(masking, Masking)
    step, training = int(masking.step_deadline_seconds), int(chosen.schedule.round_deadline_seconds)
    assert made.deadlines == Deadlines(keys=1001 + step, shares=1001 + 2 * step, masked=1001 + 2 * step + training)
    assert made.expires == made.deadlines.masked + int(masking.expiry_seconds)
    assert (made.clients, made.threshold, made.min_survivors, made.neighbours) == (5, 4, 4, 4)


def test_whoever_checks_arrives_at_what_was_signed() -> None:
    plan = session_plan(settings(5, 1, 4, False))
    made = plan.parameters(7, session=bytes(range(32)), now=123.9)
    assert plan.due(made) == made
    assert plan.due(made.model_copy(update={"min_survivors": 6, "threshold": 6, "expires": 1})) == made
    other = session_plan(settings(5, 1, 4, False), model="0c" * 32)
    assert other.due(made) == made.model_copy(update={"model": "0c" * 32})


def test_the_vectors_follow_an_adaptive_clip_norm() -> None:
    adaptive = {"quantile": 0.5, "rate": 0.2}
    chosen = study_settings("parallel", masked=True, adaptive_clip=adaptive, noise_multiplier=0.5)
    names: dict[str, Any] = {"study": "sepsis", "roster": "0a" * 32, "model": "0b" * 32}

    def of_norm(norm: float) -> SessionPlan:
        return SessionPlan.of(chosen, MODEL, round_number=1, ledger=(2, "0c" * 32), clip_norm=norm, **names)

    first, quarter = (of_norm(norm).parameters(5, session=bytes(32), now=0.0) for norm in (1.0, 0.25))
    assert quarter.vectors[0].scale_bits == first.vectors[0].scale_bits + 2
    assert first.vectors[0].length == 1 + sum(math.prod(shape) for shape, _ in MODEL.values())
    assert first.settings == chosen.digest()


def test_a_study_without_masks_has_no_session() -> None:
    with pytest.raises(ValueError, match="no sums under masks"):
        session_plan(StudySettings.model_validate(masked("parallel", masking=None)))
