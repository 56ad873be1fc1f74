"""Sections of the audit's page: what membership inference and reconstruction found, as tables and pictures."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from simulation.audit.membership import MembershipReport
    from simulation.audit.reconstruction import ReconstructionReport

_WIDTH, _HEIGHT = 420, 300
# Okabe and Ito's palette: told apart by colour-blind readers.
_COLOURS = ("#D55E00", "#0072B2", "#000000", "#999999")
_CEILING, _GUESSING = "most that the certificate allows", "guessing"
_PIXELS = 3


def membership_section(report: MembershipReport) -> str:
    """Return HTML: a short text, the table and the picture.

    Raises:
        ModuleNotFoundError: vl-convert-python is missing, which the extra `simulation` brings.
    """
    import vl_convert

    text = (
        "<p>An attacker has a patient's record and the finished model, and asks whether the patient took part. A model "
        "often fits the patients that it was trained on better than others. The study was run many times on random "
        "halves of the patients, so that the attacker knows how a model looks with and without each patient. The "
        "table shows how many of the patients who took part are found, if 1 % or 0.1 % of the others are wrongly "
        "taken for participants. An AUC of 0.5 is guessing.</p>"
    )
    shares = [100 * each.false_positives for each in report.models[0].attacks[0].at]
    head = ("model", "quality", "attack", "AUC", *(f"found at {share:g} % false positives" for share in shares))
    rows: list[Sequence[str]] = []
    for models in report.models:
        quality = "" if models.value is None else f"{models.metric} {models.value:.3f}"
        for attack in models.attacks:
            found = [f"{each.rate:.2%} ({each.low:.2%} to {each.high:.2%})" for each in attack.at]
            rows.append((f"{models.name}, {models.studies} runs", quality, attack.attack, f"{attack.auc:.3f}", *found))
    if report.epsilon is not None:
        at = report.models[-1].attacks[0].at
        limits = ["" if each.ceiling is None else f"at most {each.ceiling:.2%}" for each in at]
        rows.append((f"{_CEILING}, ε {report.epsilon:.3g}, δ {report.delta:.0e}", "", "any attack", "", *limits))
    else:
        text += "<p>This study states no classical ε for one patient, so nothing bounds these attacks.</p>"
    if report.alarms:
        text += (
            f"<p><strong>{escape(', '.join(report.alarms))} found more patients than the certificate allows.</strong> "
            "The certificate does not hold for this study.</p>"
        )
    svg = vl_convert.vegalite_to_svg(membership_chart(report))
    return f"<h2>Membership inference</h2>{text}{_table(head, rows)}{svg}"


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


def reconstruction_section(report: ReconstructionReport) -> str:
    """Return HTML: a short text, the table, and the picture of images."""
    text = (
        "<p>An update is computed from patients' records. This table shows how much of one record the coordinator can "
        f"compute back from updates of different kinds ({report.method}, {report.records} records, noise multiplier "
        f"{report.noise_multiplier:.3g}). A cosine of 1 is the record itself, 0 is nothing of it. The place is that of "
        f"the right record among {report.candidates:,}, ordered by how well each explains the update: 1 is found, "
        f"{(report.candidates + 1) / 2:,.0f} is guessing. A masked vector of one hospital alone is random whatever it "
        "holds.</p>"
    )
    head = ("what is seen", "cosine", "error", "median place", "found", "in this study")
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
        picture = (
            f'<figure><img alt="{caption}" src="data:image/png;base64,{report.picture}"><figcaption>{caption}'
            "</figcaption></figure>"
        )
    return f"<h2>Reconstruction</h2>{text}{_table(head, rows)}{picture}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    first = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table>"


def png(grey: NDArray[np.float64]) -> bytes:
    """Return a PNG of (height, width) numbers from 0, black, to 1, each a square of pixels."""
    levels = np.kron(np.rint(255 * grey).astype(np.uint8), np.ones((_PIXELS, _PIXELS), np.uint8))
    height, width = levels.shape
    # Every line begins with its filter, 0: none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), levels], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
