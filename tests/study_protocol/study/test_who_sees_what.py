"""Who sees what of a hospital."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from study_protocol.study.outside_witness import OutsideWitness
from study_protocol.study.who_sees_what import disclosures
from study_protocol.wire.signing import encode_public_key
from tests.factories.monitored_studies import monitored_study
from tests.factories.settings import settings, statistics_settings


def test_noise_is_said_where_it_is_added() -> None:
    assert any(
        "with noise that is added at the hospital" in line for line in disclosures(settings("parallel"), mine=False)
    )
    assert any("update, without noise" in line for line in disclosures(settings("client"), mine=False))
    assert any("the sum of all hospitals' updates" in line for line in disclosures(settings("sequential"), mine=True))


def test_who_signs_the_ledger_from_outside_is_said_before_anybody_joins() -> None:
    plain = settings()
    key = encode_public_key(Ed25519PrivateKey.generate().public_key())
    schedule = plain.schedule.model_copy(update={"witnesses": (OutsideWitness(name="auditor", public_key=key),)})
    assert any("(auditor)" in line for line in disclosures(plain.model_copy(update={"schedule": schedule}), mine=True))
    assert not any("outside witnesses" in line for line in disclosures(plain, mine=True))


@pytest.mark.parametrize(
    ("masked", "words"),
    [(True, "the sum of all hospitals' noised counts, never your own"), (False, "your counts with noise")],
)
def test_of_a_query_the_coordinator_sees_a_sum_or_counts_with_noise(masked: bool, words: str) -> None:
    lines = disclosures(statistics_settings(masked=masked), mine=True)
    assert lines[0] == f"the coordinator, of a query: {words}; who takes part"
    assert "readers: the released answers" in lines


def test_distances_that_are_shown_without_noise_are_said_to_void_the_limit() -> None:
    plain = " ".join(disclosures(settings("parallel", bayesian=True), mine=True))
    assert "your log-moments without noise, yours alone: the classical limit does not hold against it" in plain
    at_end = " ".join(disclosures(settings("parallel", bayesian=True, disclosure="at-end"), mine=False))
    assert "written into the ledger when the study has ended" in at_end
    classical = " ".join(disclosures(settings("parallel"), mine=True))
    assert "log-moments" not in classical


def test_readers_of_a_study_with_questions_see_models_and_answers() -> None:
    lines = disclosures(settings(statistics={"max_queries": 3, "max_cells": 10}), mine=False)
    assert "readers: the released models and answers" in lines
    assert any(line.startswith("the coordinator, of a query: each hospital's counts with noise") for line in lines)


@pytest.mark.parametrize(("mine", "whose"), [(True, "your"), (False, "each hospital's")])
def test_who_sees_what_of_later_patients(mine: bool, whose: str) -> None:
    lines = disclosures(monitored_study(), mine=mine)
    assert f"the coordinator, of later patients: up to which window {whose} records reach" in lines
    assert "readers, of later patients: noised sums about each of 4 windows, the last one ends on 2026-12-27" in lines
    assert not any("later patients" in line for line in disclosures(settings(), mine=mine))
