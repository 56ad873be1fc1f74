"""The attack of one run: its bound is below a sound study's certificate, and passes it where the noise is too small."""

from __future__ import annotations

import pytest

from simulation.audit.attack import attack, judged
from simulation.audit.one_run import GuessPlan, StudyLaw
from tests.factories.hospitals import records
from tests.simulation.audit.studies import study

DELTA = 1e-5


@pytest.mark.slow
def test_a_sound_study_is_not_refuted() -> None:
    found = attack(study(), records(40), canaries=20, delta=DELTA, seed=1)
    assert found.proven <= found.certified
    assert not found.refuted
    assert 1 <= found.canaries <= found.dimension == 3
    assert found.right <= found.guesses <= found.canaries


def test_right_guesses_beyond_the_certificate_refute_it() -> None:
    found = judged(StudyLaw(4.0, 1.0, 1), DELTA, 5_000, GuessPlan(500, 0.5), 5_000, 490, 1)
    assert found.refuted
    assert found.proven > found.certified
    assert found.of_any <= found.most
