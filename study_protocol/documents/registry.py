"""The entry of the public Differential Privacy Deployments Registry (registry.opendp.org) for a study.

Field names and words are those of `schemas/deployments-schema.yaml` of github.com/opendp/deployments-registry-data, as
it stood at commit 3e9c812 (15 July 2026). The schema follows Ghazi, Nanayakkara and Vadhan (arXiv 2509.13509). Facts
that a study does not know (who publishes, for what, where) are left for people. Required fields then say TO BE WRITTEN,
and others are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from study_protocol.documents.phrases import UNIT_NOUNS, charged_rounds, clip_norm, hospitals
from study_protocol.study.certificate import Certificate, CertifiedLimit
from study_protocol.study.noise_schedule import schedule_in_words
from study_protocol.wire.rounded import at_least, number

SCHEMA = "opendp/deployments-registry-data, schemas/deployments-schema.yaml at 3e9c812 (2026-07-15)"
TO_WRITE = "TO BE WRITTEN"
_HAZARDS = ("Floating point", "Random numbers", "Side channels", "Security and access")


def entry(stated: Certificate) -> dict[str, Any]:
    """Return the entry, a draft of tier 3, for the model that the certificate is about."""
    return {
        "url_slug": stated.study,
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": _basic(stated),
            "dp_variant": {
                # One of the registry's variants. The Bayesian number has no field of its own and stands in the details.
                "variant_name": "Approximate DP",
                "unprotected_quantities": _answer_to(stated, "Quantities without protection"),
            },
            "privacy_loss": _privacy_loss(stated),
            "deployment_model": _model(stated),
            "accounting": {
                "post_processing": _answer_to(stated, "Post-processing"),
                "composition": _answer_to(stated, "Composition"),
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": _answer_to(stated, "Choices made on the data"),
                "mechanisms": "\n".join(f"- {line}" for line in _mechanisms(stated)),
            },
            "administrative": {
                "sources": f"Certificate of {stated.issued_at:%Y-%m-%d}, signed by the coordinator with the key "
                f"{stated.coordinator_fingerprint}; ledger {stated.ledger.sha256}, {stated.ledger.entries} entries.",
                "registry_authors": [TO_WRITE],
            },
        },
    }


def as_yaml(value: Mapping[str, Any]) -> str:
    """Return the registry's entry as YAML. Texts are quoted as in JSON, which YAML reads, so that none is markup."""
    return "\n".join([f"# fields: {SCHEMA}", *yaml_lines(value)]) + "\n"


def yaml_lines(value: Mapping[str, Any], indent: str = "") -> list[str]:
    """Return a mapping as YAML, line by line: mappings in blocks, all else as JSON, which YAML reads."""
    lines: list[str] = []
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            lines += [f"{indent}{name}:", *yaml_lines(cast("Mapping[str, Any]", inner), indent + "  ")]
        else:
            lines.append(f"{indent}{name}: {_scalar(inner)}")
    return lines


def _scalar(value: Any) -> str:
    # YAML 1.1 reads 1e-05 as text. With a point it is a number.
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")
    return json.dumps(value, ensure_ascii=False)


def _basic(stated: Certificate) -> dict[str, Any]:
    return {
        "name": stated.title or stated.study,
        "data_curators": [TO_WRITE],
        "intended_use": TO_WRITE,
        "data_product_type": "Machine learning model",
        "data_product_region": TO_WRITE,
        "description": f"A model that is trained with {hospitals(stated.members)} (round {stated.round}).",
        "publication_date": f"{stated.issued_at:%Y-%m-%d}",
        "data_product_sector": "Healthcare",
    }


def _privacy_loss(stated: Certificate) -> dict[str, Any]:
    classical = [limit for limit in stated.limits if limit.state != "unbounded" and limit.definition == "classical"]
    parameters = _parameters(classical[0]) if classical else {}
    return {
        # The parameters are of one unit. The details have every limit.
        "privacy_unit": UNIT_NOUNS[classical[0].level]
        if classical
        else " and ".join(UNIT_NOUNS[level.level] for level in stated.mechanism.levels),
        "privacy_unit_details": f"{_answer_to(stated, 'What is protected')}; {_answer_to(stated, 'Which data sets')}",
        **({"privacy_parameters": parameters} if parameters else {}),
        "privacy_parameters_details": "\n".join(f"- {limit.meaning}" for limit in stated.limits),
    }


def _parameters(limit: CertifiedLimit) -> dict[str, float]:
    """Return ε spent, rounded up, and δ of the first classical limit."""
    if limit.spent is None or limit.delta is None:
        return {}
    return {"epsilon": float(number(limit.spent)), "delta": limit.delta}


def _model(stated: Certificate) -> dict[str, str]:
    rounds = charged_rounds(stated.rounds, stated.mechanism.steps_per_round)
    queries = _answer_to(stated, "Queries")
    return {
        "model_name": "Federated",
        "model_name_details": _answer_to(stated, "Trust model"),
        "actors": "\n".join(f"- {line}" for line in (*stated.who_sees_what, *stated.under_masks)),
        "release_type": "Many releases",
        "release_type_details": f"rounds: {rounds}; the budget is never reset",
        "data_source_type": "Static",
        "access_type": "Non-interactive" if queries.startswith("none from outside") else "Interactive",
        "access_type_details": queries,
    }


def _mechanisms(stated: Certificate) -> list[str]:
    steps = [
        f"{row.level} level: {clip_norm(row.clip_norm, adaptive=row.adaptive)}, "
        f"noise multiplier ≥ {at_least(row.noise_multiplier)}"
        for row in stated.mechanism.levels
    ]
    schedule = stated.mechanism.noise_schedule
    if schedule is not None:
        steps.append(f"Noise by round: {schedule_in_words(tuple(stage.plan() for stage in schedule))}")
    hazards = [f"{asks}: {_answer_to(stated, asks)}" for asks in _HAZARDS]
    return ["Discrete Gaussian mechanism on clipped sums, implemented by Wardround", *steps, *hazards]


def _answer_to(stated: Certificate, asks: str) -> str:
    """Return the certificate's own answer to a question of NIST SP 800-226, by how it begins."""
    return next((answer.answer for answer in stated.nist if answer.asks.startswith(asks)), "")
