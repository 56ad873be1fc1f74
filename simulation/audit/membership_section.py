"""The section of a page about membership inference: how many members are found, beside what the certificate allows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from simulation.audit.membership import STUDY, MembershipReport, strongest
from simulation.audit.page import Section

Curve = Sequence[tuple[float, float]]
_SIZE, _LEFT, _LEAST = 320, 60, 1e-3
_DASHES = ("4 4", "none", "10 4")


def membership_section(found: MembershipReport) -> Section:
    """Return the section, with one picture of the strongest attack on each kind of model."""
    rows: list[list[str]] = []
    curves: dict[str, Curve] = {}
    for models in found.models:
        curves[models.name] = strongest(models.attacks).curve
        for attack in models.attacks:
            cells = [
                f"{at.rate:.2%} ({at.low:.2%} to {at.high:.2%})" + (f", allowed {at.ceiling:.2%}" if at.ceiling else "")
                for at in attack.at
            ]
            rows.append([models.name, attack.attack, f"{attack.auc:.3f}", *cells])
    if found.ceiling is not None:
        curves["ceiling"] = found.ceiling
    studies = ", ".join(f"{models.studies} {models.name}" for models in found.models)
    lines = [
        f"An attacker with models of other studies tells which of {found.patients:,} patients took part ({studies}). "
        "Shown are the shares of members that are found when 1 % and 0.1 % of the others are taken for members, with "
        "95 % intervals. A certificate allows e^ε times the false positives, and δ.",
    ]
    columns = (
        "model",
        "attack",
        "AUC",
        *(f"found at {at.false_positives:.1%}" for at in found.models[0].attacks[0].at),
    )
    alarms = [f"{attack} finds more members of {STUDY} than the certificate allows" for attack in found.alarms]
    return Section(
        "membership",
        "Membership inference",
        found.model_dump(mode="json"),
        lines,
        columns,
        rows,
        picture(curves),
        alarms,
    )


def picture(curves: Mapping[str, Curve]) -> str:
    """Return an SVG of the share of members found over false positives, both on logarithmic axes from 0.1 %."""
    shapes = [
        f'<rect x="{_LEFT}" y="10" width="{_SIZE}" height="{_SIZE}" fill="none" stroke="var(--line)"/>',
        *(_ticks(power) for power in (-3, -2, -1, 0)),
        f'<text x="{_LEFT}" y="{_SIZE + 50}" fill="currentColor">false positives (across), members found (up)</text>',
    ]
    for place, (name, curve) in enumerate(curves.items()):
        points = " ".join(f"{_across(rate):.1f},{_up(share):.1f}" for rate, share in curve if rate >= _LEAST)
        style = f'fill="none" stroke="var(--bar)" stroke-width="2" stroke-dasharray="{_DASHES[place % 3]}"'
        height = 30 + 20 * place
        shapes += [
            f'<polyline points="{points}" {style}/>',
            f'<line x1="{_LEFT + _SIZE + 15}" x2="{_LEFT + _SIZE + 55}" y1="{height}" y2="{height}" {style}/>',
            f'<text x="{_LEFT + _SIZE + 62}" y="{height + 5}" fill="currentColor">{escape(name)}</text>',
        ]
    size = f'viewBox="0 0 {_LEFT + 2 * _SIZE} {_SIZE + 60}" width="{_LEFT + 2 * _SIZE}" font-size="14"'
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
