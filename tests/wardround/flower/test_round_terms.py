"""The terms of a round: what it costs whom, and their way through a configuration."""

from __future__ import annotations

import math

import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.guard.charges import Charge
from wardround.flower.round_terms import LEDGER_HEAD, RUN, PatientTraining, RoundTerms


def test_the_server_counts_the_noise_of_so_many_hospitals_and_each_hospital_its_own() -> None:
    terms = RoundTerms(noise_multiplier=2.0, min_honest=4)
    assert terms.sent() == Charge("client", 2.0, 1.0, 1)
    released = terms.released().noise_multiplier
    assert released <= 4.0
    assert released == pytest.approx(4.0, rel=1e-15)
    assert RoundTerms(noise_multiplier=2.0).released() == terms.sent()


def test_patients_training_costs_the_same_for_all_who_see_it() -> None:
    terms = RoundTerms(unit="patient", noise_multiplier=1.1, sampling_rate=0.02, steps=50)
    assert terms.released() == terms.sent() == Charge("instance", 1.1, 0.02, 50)
    assert PatientTraining(1.1, 0.02, 50).charge() == terms.sent()


@pytest.mark.parametrize(
    ("training", "allowed"),
    [
        ((1.1, 0.02, 50), True),
        ((1.2, 0.01, 49), True),
        ((1.0, 0.02, 50), False),
        ((1.1, 0.03, 50), False),
        ((1.1, 0.02, 51), False),
    ],
)
def test_a_training_may_cost_less_than_the_terms_and_not_more(
    training: tuple[float, float, int], allowed: bool
) -> None:
    terms = RoundTerms(unit="patient", noise_multiplier=1.1, sampling_rate=0.02, steps=50)
    assert terms.allows(PatientTraining(*training)) is allowed


def test_terms_come_back_from_a_configuration_with_other_entries() -> None:
    terms = RoundTerms(noise_multiplier=3.0, clip_norm=0.5, min_honest=2)
    config = {**terms.to_config(), "lr": 0.1, RUN: "flower-1", LEDGER_HEAD: "3:abc", "server-round": 4}
    assert RoundTerms.from_config(config) == terms


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"wardround-noise_multiplier": 0.0},
        {"wardround-noise_multiplier": math.inf},
        {"wardround-noise_multiplier": 1.0, "wardround-unit": "clinic"},
        {"wardround-noise_multiplier": 1.0, "wardround-mystery": 1},
        {"wardround-noise_multiplier": 1.0, "wardround-sampling_rate": 1.5},
    ],
)
def test_a_round_without_known_terms_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="KeptRounds"):
        RoundTerms.from_config(config)
