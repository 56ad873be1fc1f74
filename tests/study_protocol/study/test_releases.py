"""A ledger's clip norms: the one of the settings where it is constant, and moves within the factor where it adapts."""

from __future__ import annotations

import math

import pytest

from study_protocol.study.any_settings import AnySettings
from study_protocol.study.releases import fault_of_clip_norm
from tests.factories.settings import settings, statistics_settings

# A share of patients between 0 and 1 is at most 1/2 from the quantile: the norm moves by a factor of at most e^0.1.
EXPONENT = 0.2 / 2
ADAPTIVE = settings(noise_multiplier=0.5, clip_norm=2.0, adaptive_clip={"quantile": 0.5, "rate": 0.2})


@pytest.mark.parametrize("constant", [settings(), statistics_settings()], ids=["training", "questions alone"])
def test_a_constant_norm_is_named_by_no_model(constant: AnySettings) -> None:
    assert fault_of_clip_norm(constant, None, None) is None
    fault = fault_of_clip_norm(constant, 1.0, None)
    assert fault == "it names a clip norm, and the study's is constant"


def test_an_adaptive_norm_begins_with_that_of_the_settings() -> None:
    assert fault_of_clip_norm(ADAPTIVE, 2.0, None) is None
    assert fault_of_clip_norm(ADAPTIVE, 1.9, None) == "the study begins with clip norm 2, not 1.9"
    assert fault_of_clip_norm(ADAPTIVE, None, 2.0) == "it names no clip norm, and the study's is adaptive"


@pytest.mark.parametrize("exponent", [-1.0, -0.3, 0.0, 0.7, 1.0])
def test_an_adaptive_norm_moves_within_its_factor(exponent: float) -> None:
    assert fault_of_clip_norm(ADAPTIVE, 2.0 * math.exp(EXPONENT * exponent), 2.0) is None


@pytest.mark.parametrize("exponent", [-1.01, 1.01])
def test_an_adaptive_norm_that_jumps_is_a_fault(exponent: float) -> None:
    fault = fault_of_clip_norm(ADAPTIVE, 2.0 * math.exp(EXPONENT * exponent), 2.0)
    assert fault is not None
    assert "more than a factor of" in fault
