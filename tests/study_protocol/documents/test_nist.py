"""Answers to the questions of NIST SP 800-226."""

from __future__ import annotations

from typing import Any

import pytest

from accounting.units import Level
from study_protocol.documents.nist import answers, neighbours, trust, unit
from study_protocol.study.plan_of import plan_of
from tests.factories.certificates import signed
from tests.factories.settings import settings


@pytest.mark.parametrize(
    ("options", "void"),
    [
        ({}, False),
        ({"bayesian": True, "disclosure": "plain"}, True),
        ({"bayesian": True, "disclosure": "at-end"}, True),
        ({"bayesian": True, "disclosure": "noised", "histogram_noise": {"std": 12.0, "every": 2}}, False),
    ],
)
def test_noise_in_shares_holds_against_the_coordinator_unless_it_reads_distances(
    options: dict[str, Any], void: bool
) -> None:
    stated = signed(scheme="client-distributed", **options).certificate
    said = {one.asks: one.answer for one in stated.nist}
    assert ("void against the coordinator" in said["Trust model"]) is void
    assert ("all that the coordinator saw" in said["Against whom"]) is not void
    assert said["Trust model"].startswith("distributed model")
    assert "without noise and is trusted" not in said["Trust model"]
    assert "with its noise, once with its data, once with zeros" in said["Which data sets are compared: neighbours"]
    assert "one hospital's update is clipped" in said["Mechanism"]
    assert said["Sampling"] == "client level: no credit is taken"
    assert (stated.mechanism.scheme, stated.mechanism.title) == ("client-distributed", "central noise in shares")
    (classical,) = [one for one in stated.limits if (one.level, one.definition) == ("client", "classical")]
    assert "3 honest clients added their shares of the noise to every sum" in classical.certificate["assumption"]
    assert "had its data used (that it is a member is known)" in classical.meaning
    seen = " ".join(stated.who_sees_what)
    assert "the sum of all hospitals' updates, with noise that is added at the hospital" in seen


@pytest.mark.parametrize(("slots", "shown"), [((1.0, 2.0), "of its slots"), ((), "how many passes")])
def test_what_the_time_shows_depends_on_slots(slots: tuple[float, ...], shown: str) -> None:
    plain = settings()
    chosen = plain.model_copy(update={"schedule": plain.schedule.model_copy(update={"slots": slots})})
    said = {one.asks: one.answer for one in answers(chosen, (), 0, 0)}
    assert shown in said["Side channels"]


def test_the_unit_of_privacy_says_how_many_rows_of_a_patient_are_used() -> None:
    one = settings("parallel")
    several = settings("parallel", training={"rows_per_patient": 5})
    assert "its one row" in unit(Level.INSTANCE, one)
    assert "all its rows, of which at most 5 are used" in unit(Level.INSTANCE, several)
    assert unit(Level.CLIENT, several) == "everything that one hospital contributes"


@pytest.mark.parametrize(
    ("scheme", "level", "words"),
    [
        ("parallel", Level.INSTANCE, "with and without one record (add-remove, unbounded DP)"),
        ("client-distributed", Level.CLIENT, "one hospital takes part with its noise, once with its data"),
    ],
)
def test_neighbours_are_named_as_nist_names_them(scheme: str, level: Level, words: str) -> None:
    assert neighbours(plan_of(settings(scheme)), level).startswith(words)


@pytest.mark.parametrize(
    ("scheme", "words"),
    [
        ("client", "the coordinator sees updates without noise and is trusted to add it"),
        ("parallel", "each adds enough noise for itself, so that the coordinator need not be trusted with privacy"),
        ("client-distributed", "only sums are seen; at most 1 of them side with the coordinator"),
    ],
)
def test_whom_one_has_to_trust_follows_from_who_adds_the_noise(scheme: str, words: str) -> None:
    chosen = settings(scheme)
    assert trust(chosen, plan_of(chosen)).endswith(words)


def test_a_rate_of_sampling_is_stated_where_it_is_credited() -> None:
    sampled = settings(sampling_rate=0.05, expected_batch_size=5.0)
    said = {answer.asks: answer.answer for answer in answers(sampled, (), 0, 0)}
    assert said["Sampling"] == "instance level: Poisson, rate 0.05, secret"
    assert said["Queries"].startswith("none from outside: ")
    assert "beyond the usual bounds" in said["Large ε"]


def test_every_part_has_its_questions_once() -> None:
    found = answers(settings(), (), 0, 0)
    assert [answer.part for answer in found] == ["guarantee"] * 7 + ["mechanism"] * 6 + ["hazards"] * 12
    assert len({answer.asks for answer in found}) == len(found)
