"""Sections of the audit's page: what membership inference and reconstruction found, as tables and pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from simulation.audit.membership import STUDY, MembershipReport, strongest
from simulation.audit.page import AuditSection
from simulation.audit.reconstruction import ReconstructionReport
from study_protocol.wire.rounded import significant

Curve = Sequence[tuple[float, float]]
_SIZE, _LEFT, _LEAST = 320, 60, 1e-3
_DASHES = ("4 4", "none", "10 4", "1 5")
_CEILING, _GUESSING = "most that the certificate allows", "guessing"


def membership_section(report: MembershipReport) -> AuditSection:
    """Return the section with its table, and one picture of the strongest attack on each kind of model."""
    lines = [
        "An attacker has a patient's record and the finished model, and asks whether the patient took part. The study "
        f"ran many times on random halves of {report.patients:,} patients, so that the attacker knows how a model fits "
        "each patient who took part, and each who did not. The table shows how many of those who took part are found, "
        "when so many of the others are wrongly taken for participants. An AUC of 0.5 is guessing. Intervals have "
        "95 % confidence. A certificate allows e^ε times the false positives, and δ.",
    ]
    first = report.models[0].attacks[0].at
    columns = ("model", "quality", "attack", "AUC", *(f"found at {100 * each.false_positives:g} %" for each in first))
    rows, curves = _attack_rows(report), dict[str, Curve]()
    for models in report.models:
        best = strongest(models.attacks)
        curves[f"{models.name}, {best.attack}"] = best.curve
    if report.epsilon is None or report.ceiling is None:
        lines.append("This study states no classical ε of one patient, so that nothing bounds these attacks.")
    else:
        limits = ["" if each.ceiling is None else f"{each.ceiling:.2%}" for each in report.models[-1].attacks[0].at]
        rows.append((_CEILING, f"ε {significant(report.epsilon, 3)}, δ {report.delta:g}", "any", "", *limits))
        curves[_CEILING] = report.ceiling
    curves[_GUESSING] = [(share, share) for share, _ in report.models[0].attacks[0].curve]
    alarms = [f"{attack} finds more members of {STUDY} than the certificate allows" for attack in report.alarms]
    return AuditSection(
        "membership",
        "Membership inference",
        report.model_dump(mode="json"),
        lines,
        columns,
        rows,
        picture(curves),
        alarms,
    )


def _attack_rows(report: MembershipReport) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for models in report.models:
        quality = "" if models.value is None else f"{models.metric} {models.value:.3f}"
        for attack in models.attacks:
            rates = [f"{each.rate:.2%} ({each.low:.2%} to {each.high:.2%})" for each in attack.at]
            rows.append((f"{models.name}, {models.studies} runs", quality, attack.attack, f"{attack.auc:.3f}", *rates))
    return rows


def picture(curves: Mapping[str, Curve]) -> str:
    """Return an SVG of the share of members found over false positives, both on logarithmic axes from 0.1 %."""
    shapes = [
        f'<rect x="{_LEFT}" y="10" width="{_SIZE}" height="{_SIZE}" fill="none" stroke="var(--line)"/>',
        *(_ticks(power) for power in (-3, -2, -1, 0)),
        f'<text x="{_LEFT}" y="{_SIZE + 50}" fill="currentColor">false positives (across), members found (up)</text>',
    ]
    for place, (name, curve) in enumerate(curves.items()):
        points = " ".join(f"{_across(rate):.1f},{_up(share):.1f}" for rate, share in curve if rate >= _LEAST)
        style = f'fill="none" stroke="var(--bar)" stroke-width="2" stroke-dasharray="{_DASHES[place % len(_DASHES)]}"'
        height = _SIZE + 75 + 20 * place
        shapes += [
            f'<polyline points="{points}" {style}/>',
            f'<line x1="{_LEFT}" x2="{_LEFT + 40}" y1="{height}" y2="{height}" {style}/>',
            f'<text x="{_LEFT + 50}" y="{height + 5}" fill="currentColor">{escape(name)}</text>',
        ]
    wide, high = _LEFT + _SIZE + 20, _SIZE + 75 + 20 * len(curves)
    size = f'viewBox="0 0 {wide} {high}" width="{wide}" font-size="14"'
    return f'<svg role="img" aria-label="members found over false positives" {size}>{"".join(shapes)}</svg>'


def _ticks(power: int) -> str:
    label, at = f"{10.0**power:.2g}", 10.0**power
    return (
        f'<text x="{_across(at) - 10:.0f}" y="{_SIZE + 28}" fill="currentColor">{label}</text>'
        f'<text x="5" y="{_up(at) + 5:.0f}" fill="currentColor">{label}</text>'
    )


def _across(rate: float) -> float:
    return _LEFT + _SIZE * (1 + math.log10(min(max(rate, _LEAST), 1.0)) / 3)


def _up(share: float) -> float:
    return 10 - _SIZE * math.log10(min(max(share, _LEAST), 1.0)) / 3


def reconstruction_section(report: ReconstructionReport) -> AuditSection:
    """Return the section with its table, and the picture of images."""
    lines = [
        "An update is computed from patients' records. The table shows how much of one record the coordinator can "
        f"compute back from updates of different kinds ({report.method}, {report.records} records, noise multiplier "
        f"{report.noise_multiplier:.3g}). A cosine of 1 is the record itself, 0 is nothing of it. The place is that of "
        f"the right record among {report.candidates:,}, ordered by how well each explains the update: 1 is found, "
        f"{(report.candidates + 1) / 2:,.0f} is guessing. A masked vector of one hospital alone is random whatever it "
        "holds."
    ]
    columns = ("what is seen", "cosine", "error", "median place", "found", "in this study")
    rows = [
        (
            view.name,
            f"{view.cosine:.2f}",
            f"{view.error:.2f}",
            f"{view.rank:,.0f}",
            f"{view.found:.0%}",
            "the coordinator sees this" if view.seen else "",
        )
        for view in report.views
    ]
    picture = ""
    if report.picture is not None:
        caption = "First line: records. Below: what was computed from each kind of update, in the table's order."
        source = f"data:image/png;base64,{report.picture}"
        picture = f'<figure><img alt="{caption}" src="{source}"><figcaption>{caption}</figcaption></figure>'
    figures = report.model_dump(exclude={"picture"})
    return AuditSection("reconstruction", "Reconstruction", figures, lines, columns, rows, chart=picture)
