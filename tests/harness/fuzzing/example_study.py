"""One small study's ledger, certificate and export, made without a coordinator, as inputs to begin from."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.budget.bodies import Standing
from accounting.budget.budget import Budget
from accounting.budget.ledger import Entry, append, digest
from study_protocol.documents.certify import Facts, compute_account, issue_certificate
from study_protocol.study.messages import LedgerHead
from study_protocol.study.model_file import ModelMetadata
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import (
    CERTIFICATE,
    LEDGER_HEAD,
    encode_public_key,
    roster_fingerprint,
    sign_document,
)
from study_protocol.wire.tensor_files import encode_model
from tests.harness import tiny

STUDY = "tiny"
ROOT = Path(__file__).parents[3]
# Public, and of no study: changed certificates are signed again with it, so that checks behind the signature are met.
KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
PUBLIC_KEY = encode_public_key(KEY.public_key())


@cache
def settings() -> StudySettings:
    """Settings of a study of two rounds with a Bayesian and a classical limit."""
    return tiny.settings("parallel", clients=3, rounds=2)


@cache
def entries() -> tuple[Entry, ...]:
    """Its ledger: opened, its models named, two rounds of which the second is charged in full, finished."""
    budget, settings_json = Budget(plan_of(settings())), settings().as_json()
    ledger: list[Entry] = []

    def write(kind: Any, round: int | None, **event: Any) -> None:
        statement = {"limits": budget.statements(), "percentiles": budget.percentiles()}
        standing = Standing(
            settings_sha256=digest(settings_json),
            roster_sha256="a" * 64,
            members=3,
            state_sha256=digest(budget.state()),
            statement_sha256=digest(statement),
            can_continue=budget.can_continue,
        )
        ledger.append(append(ledger[-1] if ledger else None, kind, round, {**event, **standing.to_dict()}))

    write("opened", None, study=STUDY, settings=settings_json, plan=plan_of(settings()).to_dict())
    write("released", None, sha256="c" * 64, bytes=160)
    budget.reserve(1)
    write("reserved", 1)
    budget.settle(1, None)
    write("settled", 1, report=None)
    write("released", 1, sha256=hashlib.sha256(model_file()).hexdigest(), bytes=len(model_file()))
    budget.reserve(2)
    write("reserved", 2)
    budget.charge_in_full(2, "expired")
    write("charged-in-full", 2, reason="expired")
    budget.finish("stopped")
    write("finished", None, reason="stopped", report=None)
    return tuple(ledger)


def _head_signature() -> str:
    head = LedgerHead(study=STUDY, entries=len(entries()), sha256=entries()[-1].sha256)
    return sign_document(KEY, LEDGER_HEAD, head.model_dump(mode="json"))


@cache
def certificate() -> bytes:
    """Its signed certificate, as the coordinator serves it."""
    facts = Facts(
        title="A tiny study",
        state="finished",
        stop_reason="stopped",
        issued_at=datetime(2026, 1, 2, tzinfo=UTC),
        coordinator_key=PUBLIC_KEY,
        head_signature=_head_signature(),
        model=None,
    )
    return sign_again(issue_certificate(compute_account(entries()), facts).model_dump(mode="json"))


def sign_again(values: dict[str, Any]) -> bytes:
    """A certificate with any values, signed with the key above. Raises ValueError for what is no JSON."""
    signed = {"certificate": values, "signature": sign_document(KEY, CERTIFICATE, values)}
    return json.dumps(signed, allow_nan=False).encode()


@cache
def export() -> bytes:
    """Its ledger as `wardround ledger export` writes it."""
    head = {"study": STUDY, "entries": len(entries()), "sha256": entries()[-1].sha256}
    last = {
        "head": {"head": head, "signature": _head_signature()},
        "coordinator_key": PUBLIC_KEY,
        "roster": {"study": STUDY, "members": [], "fingerprint": roster_fingerprint(STUDY, [])},
        "witnesses": [],
    }
    return b"\n".join(json.dumps(line).encode() for line in [*(entry.to_dict() for entry in entries()), last]) + b"\n"


@cache
def model_file() -> bytes:
    """A released model of the study."""
    arrays = {"weight": np.zeros((1, tiny.FEATURES), np.float32), "bias": np.zeros(1, np.float32)}
    return encode_model(arrays, ModelMetadata.of(STUDY, settings(), 1).header())


@cache
def messages() -> dict[str, bytes]:
    """The examples of the API's description: JSON bodies by the name of their message."""
    examples: dict[str, Any] = json.loads((ROOT / "server/api/examples.json").read_bytes())

    def filled(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("@"):
            return filled(examples[value[1:]])
        if isinstance(value, dict):
            return {name: filled(item) for name, item in value.items()}
        return [filled(item) for item in value] if isinstance(value, list) else value

    return {name: json.dumps(filled(value)).encode() for name, value in examples.items()}
