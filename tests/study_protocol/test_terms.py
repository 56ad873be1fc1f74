"""A study in plain sentences, as hospitals and readers of the dashboard are shown it."""

from __future__ import annotations

import pytest

from study_protocol.study.settings import StudySettings
from study_protocol.terms import in_words
from tests.factories.settings import limit, settings, statistics_settings


def test_who_is_not_protected_is_said_as_well() -> None:
    words = in_words(settings("parallel", bayesian=True), mine=False)
    assert ("protects", "instance: each patient") in words
    assert ("protects", "client: not protected") in words
    assert ("limit, instance classical", "epsilon 50 at delta 1e-05") in words
    assert ("beware", "its lead asked for limits or noise beyond the usual bounds (--i-know)") in words


def test_the_rule_of_a_limit_and_the_share_of_questions_are_said() -> None:
    chosen = settings(
        limits=[limit("instance", epsilon=3.0, enforcement="fixed-plan")],
        statistics={"max_queries": 10, "max_cells": 200, "share": 0.3},
    )
    words = in_words(chosen, mine=True)
    assert ("limit, instance classical", "epsilon 3 at delta 1e-05, enforcement fixed-plan") in words
    assert any(sentence.endswith("of at most 200 numbers, with a share of 0.3 of the limit") for _, sentence in words)


def test_an_adaptive_clip_norm_is_told_with_the_first_one() -> None:
    chosen = settings(adaptive_clip={"quantile": 0.5, "rate": 0.2}, noise_multiplier=0.5, clip_norm=0.75)
    noise = dict(in_words(chosen, mine=True))["noise"]
    assert noise.endswith("at clip norm adaptive, starting at 0.75")


@pytest.mark.parametrize(
    ("algorithm", "steps", "said"),
    [
        ("fedsgd", 1, "one gradient a round, learning rate 17 at the coordinator"),
        (
            "fedavg",
            3,
            "3 local steps a round with learning rate 0.25; the coordinator moves the model by 17 times the mean "
            "update",
        ),
    ],
)
def test_the_learning_rate_that_is_shown_is_one_that_is_used(algorithm: str, steps: int, said: str) -> None:
    study = settings("parallel")
    changed = study.model_copy(
        update={
            "training": study.training.model_copy(
                update={
                    "algorithm": algorithm,
                    "local_steps": steps,
                    "learning_rate": 0.25,
                    "optimiser": study.training.optimiser.model_copy(update={"learning_rate": 17.0}),
                }
            )
        }
    )
    assert any(line.endswith(said) for name, line in in_words(changed, mine=False) if name == "training")


KINDS = {
    **{scheme: settings(scheme) for scheme in ("parallel", "sequential", "client", "joint")},
    "masked": settings("parallel", masked=True),
    "bayesian": settings("parallel", bayesian=True),
    "adaptive": settings(adaptive_clip={"quantile": 0.5, "rate": 0.2}, noise_multiplier=0.5),
    "statistics": statistics_settings(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_sentence_has_its_numbers(kind: str) -> None:
    """No formula is left to be filled in, and the numbers of limits, steps and hospitals are those of the settings."""
    study = KINDS[kind]
    words = in_words(study, mine=True, hospitals=4)
    text = "\n".join(sentence for _, sentence in words)
    assert "n + c" not in text
    assert "n hospitals" not in text
    for one in study.privacy.limits:
        assert f"epsilon {one.epsilon:g} at delta {one.delta:g}" in text
    assert f"waits {study.schedule.round_deadline_seconds:g} s" in text
    assert f"needs {study.schedule.min_clients} hospitals" in text
    if isinstance(study, StudySettings):
        assert f"at most {study.privacy.max_steps} with noise, in {study.rounds} rounds" in text
        assert f"{study.training.optimiser.learning_rate:g}" in dict(words)["training"]


@pytest.mark.parametrize(("hospitals", "quorum"), [(3, 3), (4, 3), (5, 4), (10, 6)])
def test_masks_name_the_quorum_of_the_hospitals_that_are_invited(hospitals: int, quorum: int) -> None:
    """More than half of n + c statements, counted one by one (c = 1 here)."""
    study = settings("parallel", masked=True)
    assert study.privacy.masking is not None
    c = study.privacy.masking.colluders
    assert quorum == next(q for q in range(1, 99) if 2 * q > hospitals + c)
    text = "\n".join(sentence for _, sentence in in_words(study, mine=True, hospitals=hospitals))
    assert f"{quorum} of a round's {hospitals} hospitals rebuild one" in text
    assert f"fewer than {quorum} of its {hospitals}, or" in text


def test_an_audit_is_told_to_hospitals_before_they_agree() -> None:
    chosen = settings().model_copy(update={"audit_sha256": "ab" * 32})
    assert ("audit", chosen.audit_in_words) in in_words(chosen, mine=True)
    assert all(name != "audit" for name, _ in in_words(settings(), mine=True))


def test_steps_that_are_drawn_back_are_told() -> None:
    study = settings(training={"algorithm": "fedavg", "local_steps": 3, "proximal": 0.25})
    words = " ".join(text for _, text in in_words(study, mine=True))
    assert "each step drawn back to the received weights by 0.25 times their distance" in words
