"""Ledgers of two rounds, and certificates over them without a coordinator."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pypdf import PdfReader

from accounting.budget.ledger import Entry
from study_protocol.documents import check
from study_protocol.documents.certify import Facts, compute_account, issue_certificate
from study_protocol.study.messages import ModelInfo, Study
from study_protocol.study.plan_of import plan_of
from study_protocol.wire.signing import CERTIFICATE, LEDGER_HEAD, encode_public_key, sign_document
from tests.factories.ledgers import after, opened
from tests.factories.settings import settings

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = encode_public_key(KEY.public_key())
WHEN = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
# Titles that would be source, overflow a line or have no glyph.
HOSTILE = [
    '#read("/etc/passwd") $x$ ]] "; \\ `raw` <script>alert(1)</script> [a](http://evil.example)',
    "W" * 200,
    "中文 日本語 한국어 עברית العربية हिन्दी 🫀",
    "#let x = sys.inputs; #panic(x)",
]


def ledger(*, named: bool = True, **options: Any) -> list[Entry]:
    """Two rounds. named: every model's file is named, as in studies that began with this version."""
    values: dict[str, Any] = {"max_steps": 6, **options}
    chosen = settings(**values)
    entries = opened(plan_of(chosen), chosen.as_json(), "sepsis")
    # An adaptive clip norm is named with each model.
    clip_norm = {} if chosen.privacy.adaptive_clip is None else {"clip_norm": 0.75}
    if named:
        entries.append(after(entries, "released", sha256="cd" * 32, bytes=160))
    for round in (1, 2):
        entries.append(after(entries, "reserved", round))
        entries.append(after(entries, "settled", round, report=None))
        if named:
            entries.append(after(entries, "released", round, sha256="ab" * 32, bytes=160, **clip_norm))
    return entries


def signed(title: str = "Sepsis at four hospitals", **options: Any) -> check.OpenedCertificate:
    found = compute_account(ledger(**options))
    head = {"study": "sepsis", "entries": found.entries, "sha256": found.sha256}
    head_signature = sign_document(KEY, LEDGER_HEAD, head)
    model = ModelInfo(version=2, sha256="ab" * 32, bytes=160)
    facts = Facts(title, "running", None, WHEN, PUBLIC, head_signature, model)
    return sealed(issue_certificate(found, facts).model_dump(mode="json"))


def sealed(value: dict[str, Any]) -> check.OpenedCertificate:
    """With a good signature, whatever it says."""
    whole = {"certificate": value, "signature": sign_document(KEY, CERTIFICATE, value)}
    return check.open_certificate(json.dumps(whole).encode())


ONE = signed(bayesian=True)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict | list) and value:
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, (*path, name))
    else:
        yield path


def text_of(pdf: bytes) -> str:
    return " ".join(page.extract_text() for page in PdfReader(io.BytesIO(pdf)).pages)


def study(title: str) -> Study:
    chosen, stated = settings(bayesian=True, max_steps=6), ONE.certificate
    return Study(
        study="sepsis",
        title=title,
        state="running",
        state_since=WHEN,
        pause_reason=None,
        stop_reason=None,
        invited=3,
        under_way=None,
        settings=chosen,
        settings_sha256=chosen.digest(),
        model=stated.model,
        clients=3,
        rounds=2,
        coordinator_key=PUBLIC,
        created_at=WHEN,
    )
