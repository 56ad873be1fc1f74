"""The kinds of small studies that chaos runs meet: trained in the clear and under masks, asked, and evaluated."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Literal, get_args

from accounting.plan.schemes import SchemeName
from study_protocol.study.any_settings import AnySettings, StatisticsSettings
from study_protocol.study.queries import QueryDocument
from study_protocol.study.settings import StudySettings
from tests.harness import tiny
from wardround.demo.live import site_policy

StudyKind = Literal["plain", "masked", "ring", "questions", "evaluations", "joint"]
KINDS: tuple[StudyKind, ...] = get_args(StudyKind)
FOUR = {"alpha": 12, "beta": 9, "gamma": 11, "delta": 10}
# A ring of neighbours differs from the complete graph from six hospitals on.
SIX = FOUR | {"epsilon": 8, "zeta": 13}
# Of a question, over what one patient can change.
NOISE_MULTIPLIER = 8.0
MAX_QUESTIONS = 40
# Every released model, and every second one, is evaluated on patients who are set aside.
EVALUATION = {"share": 0.3, "every": 2, "question": {"prediction": "binary", "noise_multiplier": NOISE_MULTIPLIER}}


def hospitals_of(kind: StudyKind) -> Mapping[str, int]:
    """Name of each hospital, and how many patients it has."""
    return SIX if kind == "ring" else FOUR


def settings_of(kind: StudyKind, source: random.Random, rounds: int) -> AnySettings:
    """A study of about so many rounds; scheme, end and masks follow the source where the kind leaves them open."""
    clients, masked = len(hospitals_of(kind)), kind in ("masked", "ring")
    if kind == "questions":
        return _questions(clients, masked=source.random() < 0.5)
    if kind in ("evaluations", "joint"):
        return _evaluated(kind, clients, rounds, masked=source.random() < 0.5)
    scheme: SchemeName = source.choice(("parallel", "client"))
    study_settings = tiny.study_settings(scheme, clients, rounds, masked=masked, by_limit=source.random() < 0.5)
    return _ringed(study_settings) if kind == "ring" else study_settings


def asks(kind: StudyKind) -> bool:
    """Whether people ask questions in it, beside those that its settings ask."""
    return kind in ("questions", "joint")


def question(number: int) -> QueryDocument:
    """Another one for each number."""
    question: dict[str, Any] = {"kind": "count", "noise_multiplier": NOISE_MULTIPLIER + number / 64}
    if number % 2:
        question |= {"kind": "table", "variables": [{"column": "x0", "edges": [0.0]}, {"column": "y", "edges": [0.5]}]}
    return QueryDocument.model_validate({"question": question})


def policy_of(study: str, settings: AnySettings) -> str:
    """A hospital's policy.toml: this study, what its settings need, and every question that they allow."""
    answers = '[statistics]\nqueries = "allow"\n'
    if isinstance(settings, StatisticsSettings):
        return f'studies = ["{study}"]\n{answers}'
    policy = site_policy(study, settings)
    # That of a Bayesian study has the section already, for the question by hospital.
    return policy if "[statistics]" in policy or settings.statistics is None else policy + answers


def _masking(clients: int) -> dict[str, Any]:
    return {
        "colluders": 1,
        "neighbours": None,
        "min_survivors": clients,
        "mask_updates": True,
        "allow_three": False,
        "step_deadline_seconds": tiny.STEP_SECONDS,
        "expiry_seconds": 3600.0,
    }


def _ringed(settings: StudySettings) -> StudySettings:
    values = settings.as_json()
    values["privacy"]["masking"]["neighbours"] = 4
    return StudySettings.model_validate(values)


def _questions(clients: int, *, masked: bool) -> StatisticsSettings:
    return StatisticsSettings.model_validate(
        {
            "statistics": {"max_queries": MAX_QUESTIONS, "max_cells": 100},
            "privacy": {
                "scheme": "statistics",
                "limits": [{"level": "instance", "definition": "classical", "epsilon": 20.0, "delta": 1e-3}],
                "masking": _masking(clients) if masked else None,
            },
            "schedule": {"min_clients": clients, "round_deadline_seconds": tiny.DEADLINE_SECONDS},
        }
    )


def _evaluated(kind: StudyKind, clients: int, rounds: int, *, masked: bool) -> StudySettings:
    step_seconds = tiny.STEP_SECONDS if masked else None
    trained = tiny.settings(
        "parallel",
        clients=clients,
        rounds=rounds,
        bayesian=False,
        deadline_seconds=tiny.DEADLINE_SECONDS,
        step_seconds=step_seconds,
    )
    more: dict[str, Any] = {"statistics": {"max_queries": MAX_QUESTIONS, "max_cells": 100}}
    if kind == "evaluations":
        more["evaluation"] = EVALUATION
    return StudySettings.model_validate(trained.as_json() | more)
