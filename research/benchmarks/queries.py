"""A query beside a round of training of equally many numbers: `python -m research.benchmarks.queries`.

10 and 100 hospitals, under masks and in the clear, 10,000 numbers each. Rounds and queries take turns on one
coordinator, each in a study of its own, so that whatever else the machine does meets both. The coordinator runs in a
process of its own, with its worker in it; its processor seconds are compared, and wall seconds from the first hospital
that begins a round to the last that has sent; the hospitals are threads of this process, and compute next to nothing.
A query's `answered_seconds` are from asking to the signed answer: consents, round, sum, intervals of every cell.

What a hospital itself computes for its part is measured apart: summing its patients into cells, and its share of noise.
Ratios are medians over turns. Results go to research/benchmarks/results/queries.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk.study.answers import noise_share
from research.benchmarks.load.coordinators import served
from research.benchmarks.load.jobs import run_masked, run_plain
from research.benchmarks.load.queries import QueryCase, run_queries
from research.benchmarks.load.studies import Case
from study_protocol.randomness.source import Purpose, SecureRandomness

RESULTS = Path(__file__).parent / "results" / "queries.json"
CELLS, PATIENTS = 10_000, 10_000
COMPARED = ("seconds", "cpu_ms_each", "cycle_seconds", "cycle_cpu_ms_each")
Figures = dict[str, Any]


def turn(coordinator: Any, number: int, clients: int, masked: bool, cells: int, rounds: int) -> dict[str, Figures]:
    """One study of training and one of queries. In the clear the model has as many float32 as the query has cells."""
    name = f"{number}-{clients}-{'masked' if masked else 'clear'}"
    values = cells if masked else cells // 2
    training = Case(f"training-{name}", clients, rounds, values, masked)
    asking = QueryCase(f"queries-{name}", clients, rounds, cells, masked)
    trained = run_masked(coordinator, training) if masked else run_plain(coordinator, training)
    return {"training": trained, "query": run_queries(coordinator, asking)}


def row(turns: list[dict[str, Figures]]) -> Figures:
    """Medians of both, and of their ratios turn by turn."""
    figures: Figures = {}
    for quantity in COMPARED:
        for side in ("training", "query"):
            figures[f"{side} {quantity}"] = statistics.median(turn_figures[side][quantity] for turn_figures in turns)
        ratios = [turn_figures["query"][quantity] / turn_figures["training"][quantity] for turn_figures in turns]
        figures[f"ratio of {quantity}"] = statistics.median(ratios)
        figures[f"ratios of {quantity}"] = sorted(ratios)
    figures["query answered_seconds"] = statistics.median(
        turn_figures["query"]["answered_seconds"] for turn_figures in turns
    )
    return figures


def hospital_ms(cells: int, patients: int, repeats: int = 5) -> Figures:
    """Processor milliseconds of one hospital for its own part of a query."""
    question = QueryCase("hospital", 5, 1, cells).document(0).question
    draw = np.random.default_rng(0)
    columns = {name: draw.uniform(-5, 110, patients) for name in ("a", "b")}
    grid, coins = question.grid(), SecureRandomness()
    summed, noised = list[float](), list[float]()
    for number in range(repeats):
        begun = time.process_time()
        question.total(columns, grid.spacing)
        between = time.process_time()
        noise_share(grid, 3, cells, coins.of(Purpose.QUERY, party="hospital", round_number=number))
        summed.append(1e3 * (between - begun))
        noised.append(1e3 * (time.process_time() - between))
    return {"patients": patients, "sum": statistics.median(summed), "noise": statistics.median(noised)}


def measure(sizes: list[int], cells: int, rounds: int, turns: int) -> dict[str, Figures]:
    results: dict[str, Figures] = {}
    for clients in sizes:
        for masked in (True, False):
            with served("sqlite") as coordinator:
                run_plain(coordinator, Case("warm-up", 2, 1))
                run_queries(coordinator, QueryCase("warm-up-queries", 5, 1, 16, masked))
                load = os.getloadavg()[0]
                turn_results = [turn(coordinator, number, clients, masked, cells, rounds) for number in range(turns)]
            name = f"{clients} hospitals, {'under masks' if masked else 'in the clear'}"
            results[name] = row(turn_results) | {"load average before and after": [load, os.getloadavg()[0]]}
            print(name, json.dumps(results[name]), flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hospitals", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--cells", type=int, default=CELLS)
    parser.add_argument("--rounds", type=int, default=2, help="of one study")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    report: Figures = {
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "at": time.strftime("%Y-%m-%d %H:%M"),
        "cells": options.cells,
        "rounds of a study": options.rounds,
        "turns": options.turns,
        "a hospital's own part, processor milliseconds": hospital_ms(options.cells, PATIENTS),
    }
    report["rows"] = measure(options.hospitals, options.cells, options.rounds, options.turns)
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
