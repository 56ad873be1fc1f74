"""The table of a private step's figures in docs/private-training.md: `python -m
research.benchmarks.private_step_table`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from research.benchmarks.coordinator_table import BEGIN, END
from research.benchmarks.private_step_models import WORKLOADS

RESULTS = Path(__file__).parent / "results" / "private_step.json"
PAGE = Path(__file__).parents[2] / "docs" / "private-training.md"
OURS, WITH_NOISE = "ours, clipped sum", "ours, clipped sum + exact noise"
# Heading and method: the ratio of its processor time to plain SGD's.
COLUMNS = (
    ("clipped sum", OURS),
    ("with exact noise", WITH_NOISE),
    ("Opacus ghost", "Opacus ghost"),
    ("with its noise", "Opacus ghost + its noise"),
    ("Opacus per-sample", "Opacus per-sample"),
    ("torch.func", "torch.func vmap"),
)
# Models whose figures are near those of another row. Their figures stand in the results alone.
ALIKE = frozenset(
    {
        "MLP 784-512-10",
        "logistic regression, 13",
        "logistic regression, 784",
        "CNN with fixed BatchNorm, 32 x 32",
        "cell in a loop, 40 x 64",
        "tied embedding, 40 codes",
    }
)
MEMORY = (("MiB of plain SGD", "plain SGD"), ("MiB with noise", WITH_NOISE), ("MiB of Opacus ghost", "Opacus ghost"))


def text_of(report: Mapping[str, Any]) -> str:
    """A row for each workload that is not `ALIKE`, at its smallest batch.

    Times are multiples of plain SGD's, and memory is the peak in use.
    """
    heads = ["model, batch", *(head for head, _ in COLUMNS + MEMORY)]
    lines = [_row(heads), _row(["---"] * len(heads))]
    for name, case in WORKLOADS.items():
        if name in ALIKE:
            continue
        batch = min(case.batches)
        entry = report[f"{name}, batch {batch}"]
        times = [entry["tuned"].get(method, {}).get("ratio") for _, method in COLUMNS]
        peaks = [entry["peak_mib"].get(method, {}).get("in use") for _, method in MEMORY]
        cells = ["" if peak is None else f"{peak:.0f}" for peak in peaks]
        lines.append(_row([f"{name}, {batch}", *map(_figure, times), *cells]))
    return "\n".join(lines) + "\n"


def page_with(page: str, report: Mapping[str, Any]) -> str:
    """The page with this report's table in the place of the old one."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{text_of(report)}\n{END}{rest.partition(END)[2]}"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(), json.loads(RESULTS.read_text())))
