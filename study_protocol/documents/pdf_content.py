"""A certificate as its PDF shows it: every number a text already, rounded to the side where it promises less."""

from __future__ import annotations

import hashlib
import io
import json
import math
from pathlib import Path
from typing import Any

from study_protocol.documents.card import Card
from study_protocol.documents.chart import chart_of
from study_protocol.documents.check import OpenedCertificate
from study_protocol.documents.pdf import breakable, rendered
from study_protocol.documents.phrases import UNIT_NOUNS, charged_rounds, clip_norm, exact_delta, named_file
from study_protocol.study.certificate import Certificate, CertifiedLimit, CertifiedMechanism
from study_protocol.study.limit_words import progress_in_words
from study_protocol.study.noise_schedule import schedule_in_words
from study_protocol.wire.rounded import at_least, exact, number, percent
from study_protocol.wire.signing import canonical_json

UNSHOWN = (
    "Characters that this document's fonts do not have stand here as their numbers (U+…); the attached JSON has them "
    "as they are."
)


_PARTS = {
    "guarantee": "The guarantee",
    "mechanism": "The algorithm that keeps it",
    "hazards": "Privacy hazards, and how each is met",
}


def digest(document: OpenedCertificate) -> str:
    """Return the SHA-256 (hex) of the canonical JSON of the signed content. The QR code holds it."""
    return hashlib.sha256(canonical_json(document.raw["certificate"])).hexdigest()


def certificate_pdf(document: OpenedCertificate, fonts: Path | None = None) -> bytes:
    """Return the PDF of a certificate. Equal JSON gives equal bytes.

    Raises:
        ModuleNotFoundError: the extra `documents` is missing.
    """
    issued = int(document.certificate.issued_at.timestamp())
    return rendered("certificate", _data(document), issued=issued, fonts=fonts)


def _data(document: OpenedCertificate) -> dict[str, Any]:
    stated, mark = document.certificate, digest(document)
    title = stated.title or stated.study
    chart = chart_of(stated)
    return {
        "document_title": f"Certificate of differential privacy: {title}",
        "title": breakable(title),
        "subtitle": _subtitle(stated),
        "running": f"Certificate of study {breakable(stated.study)}, issued {stated.issued_at:%Y-%m-%d %H:%M} UTC",
        "issued": _dated(stated),
        "summary": stated.summary,
        "limits": [_limit(limit) for limit in stated.limits],
        "reports": _reports(stated),
        "by_hospital": [] if stated.distances is None else stated.distances.words,
        "by_hospital_rows": _by_hospital(stated),
        "chart": chart,
        "chart_said": _chart_said(stated),
        "chart_note": _chart_note(stated),
        "mechanism": _mechanism(stated),
        "who_sees_what": [_sentence(line) for line in stated.who_sees_what],
        "under_masks": [_sentence(line) for line in stated.under_masks],
        "nist": [_part(stated, name, heading) for name, heading in _PARTS.items()],
        "verify": [[_sentence(step.shows), step.command] for step in stated.verify],
        "marks": _marks(stated, document.signed.signature, mark),
        "qr": _qr_code(mark),
        "qr_said": f"QR code of the certificate's SHA-256, {mark}",
        "json": json.dumps(document.raw, indent=1, ensure_ascii=False, sort_keys=True),
        "unshown_said": UNSHOWN,
    }


def card_pdf(card: Card, fonts: Path | None = None) -> bytes:
    """Return the PDF of a model's card. ModuleNotFoundError: as `certificate_pdf`."""
    stated = card.certificate
    data = {
        "document_title": f"Model card: {card.title}",
        "title": breakable(card.title),
        "running": f"Model card of study {breakable(stated.study)}, {stated.issued_at:%Y-%m-%d}",
        "issued": _dated(stated),
        "sections": [vars(section) for section in card.sections()],
        "unshown_said": UNSHOWN,
    }
    return rendered("card", data, issued=int(stated.issued_at.timestamp()), fonts=fonts)


def _dated(stated: Certificate) -> dict[str, int]:
    """Return the day of issue, as typst takes it."""
    return {"year": stated.issued_at.year, "month": stated.issued_at.month, "day": stated.issued_at.day}


def _qr_code(text: str) -> str:
    """Return an SVG of the text as a QR code."""
    import segno

    buffer = io.BytesIO()
    segno.make_qr(text, error="m").save(buffer, kind="svg", xmldecl=False, scale=4, border=2)
    return buffer.getvalue().decode()


def _subtitle(stated: Certificate) -> str:
    file = named_file(stated)
    about = "no model yet" if file is None else f"{file.words}, SHA-256 {file.sha256[:12]}…"
    ended = f", {stated.stop_reason}" if stated.stop_reason else ""
    return f"Study {breakable(stated.study)} · {stated.state}{ended} · {about}"


def _limit(limit: CertifiedLimit) -> dict[str, Any]:
    name = f"Each {UNIT_NOUNS[limit.level]}, {limit.definition}"
    certificate = limit.certificate or {}
    common = {"name": name, "meaning": limit.meaning, "assumption": certificate.get("assumption")}
    common["progress"] = progress_in_words(limit)
    if limit.epsilon is None:
        return {**common, "spent": "–", "limit": "–", "delta": "–", "share": None, "percent": "", "said": ""}
    share = min(1.0, limit.spent_share or 0.0)
    return {
        **common,
        "spent": number(limit.spent),
        "limit": exact(limit.epsilon),
        "delta": exact_delta(limit),
        "share": share,
        "percent": percent(share),
        "said": f"{percent(share)} of the limit is used",
    }


def _reports(stated: Certificate) -> list[list[str]]:
    return [
        [
            f"{UNIT_NOUNS[limit.level]}, {report.name}",
            number(report.epsilon),
            str(report.certificate.get("assumption", "")),
        ]
        for limit in stated.limits
        for report in limit.reports
    ]


def _chart_note(stated: Certificate) -> str:
    """Return why ε rises at once in the first round."""
    notes = {
        "ε of a whole plan, or a limit that squares are counted to, is guaranteed from the first charge on."
        if limit.counted
        else "The first round's step is the fixed part of the account at one order."
        for limit in stated.limits
        if limit.epsilon is not None
    }
    return " ".join(sorted(notes))


def _chart_said(stated: Certificate) -> str:
    if not stated.spent_after:
        return "No round has been charged."
    first, last = stated.spent_after[0], stated.spent_after[-1]
    bounded = [limit for limit in stated.limits if limit.epsilon is not None]
    sentences = [
        f"{UNIT_NOUNS[limit.level]} {limit.definition}: ε {number(first_epsilon)} after round {first.round}, "
        f"{number(last_epsilon)} after round {last.round}, limit {exact(limit.epsilon or math.inf)}"
        for limit, first_epsilon, last_epsilon in zip(bounded, first.spent, last.spent, strict=False)
    ]
    return "Chart of ε by round. " + "; ".join(sentences)


def _by_hospital(stated: Certificate) -> list[list[str]]:
    distances = stated.distances
    if distances is None:
        return []
    entries = [("All hospitals", distances.pooled)]
    entries += [(f"Hospital {place}", hospital) for place, hospital in enumerate(distances.hospitals, 1)]
    return [
        [
            name,
            number(each.epsilon),
            f"{'–' if each.estimate is None else format(each.estimate, '.2f')} "
            f"({each.estimate_low:.2f} to {each.estimate_high:.2f})",
            f"{max(0.0, sum(each.counts)):.0f}",
            f"{each.clipped_low:.0%} to {each.clipped_high:.0%}",
        ]
        for name, each in entries
    ]


def _mechanism(stated: Certificate) -> list[list[str]]:
    mechanism, rounds, members = stated.mechanism, stated.rounds, stated.members
    levels = [
        [
            f"{level.level.capitalize()} level",
            f"{level.relation}; {clip_norm(level.clip_norm, adaptive=level.adaptive)}; noise multiplier at least "
            f"{at_least(level.noise_multiplier)}; sampling rate credited: {exact(level.sampling_rate)}",
        ]
        for level in mechanism.levels
    ]
    masked = "; the coordinator sees sums only" if mechanism.masked else ""
    between = "" if members.least is None else f"; {members.least} to {members.most} when rounds were reserved"
    return [
        [
            "Scheme",
            f"{mechanism.scheme} ({mechanism.title}); noise by: {mechanism.noise_by}{masked}; "
            f"disclosure {mechanism.disclosure}",
        ],
        *levels,
        *_noise_by_round(mechanism),
        ["Steps", f"{rounds.steps} of at most {mechanism.max_steps} noised steps, {mechanism.steps_per_round} a round"],
        [
            "Rounds",
            f"{charged_rounds(rounds, mechanism.steps_per_round)}; of these {rounds.in_full} at their worst; "
            f"{rounds.cancelled} cancelled and free",
        ],
        ["Hospitals", f"{members.active} active{between}; who they are is not said here"],
    ]


def _noise_by_round(mechanism: CertifiedMechanism) -> list[list[str]]:
    if mechanism.noise_schedule is None:
        return []
    stages = tuple(stage.plan() for stage in mechanism.noise_schedule)
    return [["Noise by round", schedule_in_words(stages)]]


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _part(stated: Certificate, part: str, heading: str) -> dict[str, Any]:
    return {
        "name": heading,
        "rows": [[answer.asks, _sentence(answer.answer)] for answer in stated.nist if answer.part == part],
    }


def _marks(stated: Certificate, signature: str, mark: str) -> list[list[str]]:
    file = named_file(stated)
    return [
        ["Certificate: SHA-256 of its canonical JSON (the QR code)", mark],
        ["Signature of the coordinator (Ed25519)", signature],
        ["Coordinator's key, fingerprint", stated.coordinator_fingerprint],
        ["Settings of the study, SHA-256", stated.settings_sha256],
        [f"Ledger, entry {stated.ledger.entries} (counted up to {stated.ledger.counted})", stated.ledger.sha256],
        *([] if file is None else [[f"{_sentence(file.words)}, {file.bytes} bytes, SHA-256", file.sha256]]),
        ["Number of the roster, to be compared by telephone", stated.members.roster_number],
    ]
