"""A study's training on records, as a hospital makes it."""

from __future__ import annotations

from typing import Any

from client_sdk.guard.policy import SitePolicy
from client_sdk.study.preparation import able
from private_learning.training import LocalTraining
from study_protocol.study.settings import StudySettings


def prepared_training(
    data: Any, rules: SitePolicy, settings: StudySettings, *, party: str = "mercy", **options: Any
) -> LocalTraining:
    """Return the training that `able` makes on a processor, with what `options` give it beside."""
    # Without questions, which only tables can answer.
    trained = settings.model_copy(update={"statistics": None, "evaluation": None})
    training = able(None, data, rules, trained, None, "cpu", 60.0, party, "1", **options).training
    assert training is not None
    return training
