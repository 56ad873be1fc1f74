"""The tests of an engine's steps: silent on the sound engine, and the named one finds a planted defect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.audit import step_laws
from simulation.local_work import LocalWork
from study_protocol.study.settings import StudySettings
from tests.factories.settings import changed
from tests.simulation.audit.studies import study


def _halved(work: LocalWork) -> LocalWork:
    less = changed(work.settings, noise_multiplier=work.settings.privacy.noise_multiplier / 2)
    return _training_under(work, less)


def _unclipped(work: LocalWork) -> LocalWork:
    privacy = work.settings.privacy
    return _training_under(
        work, changed(work.settings, clip_norm=privacy.clip_norm * 1e6, noise_multiplier=privacy.noise_multiplier / 1e6)
    )


def _training_under(work: LocalWork, chosen: StudySettings) -> LocalWork:
    broken = LocalWork.of(work.population, chosen, work.training.randomness, work.training.task)
    return replace(broken, settings=work.settings)


@pytest.mark.parametrize("scheme", ["parallel", "sequential"])
def test_the_sound_engine_raises_no_alarm(scheme: str) -> None:
    found = step_laws.check_steps(study(scheme), seed=1, steps=9)
    assert found.alarms(0.01) == ()
    assert found.steps == 9
    assert found.longest > 4


def test_halved_noise_is_found() -> None:
    assert "noise" in step_laws.check_steps(study(plant=_halved), seed=1, steps=20).alarms(0.01)


@pytest.mark.parametrize("scheme", ["parallel", "sequential"])
def test_forgotten_clipping_is_found_although_the_coordinator_would_refuse_such_updates(scheme: str) -> None:
    assert "clipping" in step_laws.check_steps(study(scheme, _unclipped), seed=1, steps=9).alarms(0.01)
