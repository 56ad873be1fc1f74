"""Sections of the audit's page: what membership inference and reconstruction found, as tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simulation.audit.page import Section

if TYPE_CHECKING:
    from simulation.audit.membership import MembershipReport
    from simulation.audit.reconstruction import ReconstructionReport

_WIDTH, _HEIGHT = 420, 300
# Okabe and Ito's palette: told apart by colour-blind readers.
_COLOURS = ("#D55E00", "#0072B2", "#000000", "#999999")
_CEILING, _GUESSING = "most that the certificate allows", "guessing"


def membership_section(report: MembershipReport) -> Section:
    """Return the section with its table and picture.

    Raises:
        ModuleNotFoundError: vl-convert-python is missing, which the extra `simulation` brings.
    """
    import vl_convert

    lines = [
        "An attacker has a patient's record and the finished model, and asks whether the patient took part. A model "
        "often fits the patients that it was trained on better than others. The study was run many times on random "
        "halves of the patients, so that the attacker knows how a model looks with and without each patient. The "
        "table shows how many of the patients who took part are found, if 1 % or 0.1 % of the others are wrongly "
        "taken for participants (false positives). An AUC of 0.5 is guessing. Intervals are exact, at 95 %."
    ]
    first = report.models[0].attacks[0].at
    columns = ("model", "quality", "attack", "AUC", *(f"found at {100 * each.false_positives:g} %" for each in first))
    rows: list[Sequence[str]] = []
    for models in report.models:
        quality = "" if models.value is None else f"{models.metric} {models.value:.3f}"
        for attack in models.attacks:
            found = [f"{each.rate:.2%} ({each.low:.2%} to {each.high:.2%})" for each in attack.at]
            rows.append((f"{models.name}, {models.studies} runs", quality, attack.attack, f"{attack.auc:.3f}", *found))
    if report.epsilon is None:
        lines.append("This study states no classical ε for one patient, so that nothing bounds these attacks.")
    else:
        at = report.models[-1].attacks[0].at
        limits = ["" if each.ceiling is None else f"{each.ceiling:.2%}" for each in at]
        rows.append((_CEILING, f"ε {report.epsilon:.3g}, δ {report.delta:g}", "any", "", *limits))
    svg = vl_convert.vegalite_to_svg(membership_chart(report))
    alarms = [f"{attack} finds more patients than the certificate allows" for attack in report.alarms]
    return Section(
        "membership", "Membership inference", report.model_dump(), lines, columns, rows, chart=svg, alarms=alarms
    )


def membership_chart(report: MembershipReport) -> dict[str, Any]:
    """Return Vega-Lite: true over false positives of each model's strongest attack, on logarithmic axes."""
    curves: dict[str, Sequence[tuple[float, float]]] = {}
    for models in report.models:
        best = max(models.attacks, key=lambda attack: attack.at[0].rate)
        curves[f"{models.name}, {best.attack}"] = best.curve
    if report.ceiling is not None:
        curves[_CEILING] = report.ceiling
    curves[_GUESSING] = [(share, share) for share, _ in report.models[0].attacks[0].curve]
    values = [{"curve": name, "x": x, "y": y} for name, points in curves.items() for x, y in points if y > 0]
    scale = {"domain": list(curves), "range": [*_COLOURS[:2], *_COLOURS[4 - len(curves) + 2 :]]}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "width": _WIDTH,
        "height": _HEIGHT,
        "data": {"values": values},
        "mark": {"type": "line", "clip": True},
        "encoding": {
            "x": _share("x", "share of others wrongly taken for participants"),
            "y": _share("y", "share of participants found"),
            "color": {"field": "curve", "type": "nominal", "title": None, "scale": scale},
        },
        "config": {"legend": {"orient": "bottom", "columns": 1, "labelLimit": 400}},
    }


def _share(field: str, title: str) -> dict[str, Any]:
    scale = {"type": "log", "domain": [1e-3, 1]}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": {"format": "~%"}}


def reconstruction_section(report: ReconstructionReport) -> Section:
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
    return Section("reconstruction", "Reconstruction", figures, lines, columns, rows, chart=picture)
