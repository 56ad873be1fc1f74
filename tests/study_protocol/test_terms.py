"""A study in plain sentences, as hospitals and readers of the dashboard are shown it."""

from __future__ import annotations

import pytest

from study_protocol.terms import in_words
from tests.factories.settings import limit, settings


def test_who_is_not_protected_is_said_as_well() -> None:
    words = in_words(settings("parallel", bayesian=True), mine=False)
    assert ("protects", "instance: each patient") in words
    assert ("protects", "client: nobody") in words
    assert ("limit, instance classical", "epsilon 50 at delta 1e-05") in words
    assert ("beware", "the operator asked for limits or noise beyond the usual bounds (--i-know)") in words


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
        ("fedsgd", 1, "one gradient a round, learning rate 17"),
        ("fedavg", 3, "3 local steps a round, learning rate 0.25"),
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
