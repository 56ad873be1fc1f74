"""Noise samples a second beside ordinary generators: `python -m research.benchmarks.noise [--quick]`.

Everything runs in turn in one process on one core, round after round; rates are medians over rounds. `add_noise` is the
whole step on a clipped sum: rounding to the grid, sampling, adding, turning back. The second table is what one call
costs that has few coordinates.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from private_learning.gradients import ClippedSum
from private_learning.training.noise import SecureSource, add_float_noise, add_noise, grid, normal
from research.benchmarks.load.meter import RETAIN
from study_protocol.randomness.discrete_gaussian import sampler

RESULTS = Path(__file__).parent / "results" / "noise.json"
LARGE, SMALL = 3_274_634, (28, 26_010)  # parameters of the TF tutorial CNN; of a logistic regression and the small CNN
REQUIRED_RATE = 1e7  # samples a second
Draw = Callable[[], object]


def summed(size: int) -> ClippedSum:
    return ClippedSum({"weight": torch.randn(size)}, torch.zeros(0), 1.0)


def generators(size: int) -> dict[str, Draw]:
    source, clipped, cpu = SecureSource(), summed(size), torch.device("cpu")
    law, plain = sampler(1.0 / grid(1.0)), np.random.default_rng()
    return {
        "exact discrete Gaussian": lambda: [None for _ in law.chunks(size, source)],
        "add_noise (exact)": lambda: add_noise(clipped, noise_multiplier=1.0, source=source),
        "float Gaussian from the same source": lambda: normal(size, source, cpu),
        "add_float_noise": lambda: add_float_noise(clipped, noise_multiplier=1.0, source=source),
        "AES-256-CTR, 4 bytes a sample": lambda: [source.words(1 << 14, np.uint32) for _ in range(size >> 14)],
        "torch.randn, float32": lambda: torch.randn(size),
        "torch.randn, float64": lambda: torch.randn(size, dtype=torch.float64),
        "numpy PCG64, float64": lambda: plain.standard_normal(size),
    }


def seconds(draws: dict[str, Draw], rounds: int, repeats: int) -> dict[str, float]:
    """Median processor seconds of one call."""
    timings: dict[str, list[float]] = {name: [] for name in draws}
    for draw in draws.values():
        draw()
    for _ in range(rounds):
        for name, draw in draws.items():
            began = time.thread_time()
            for _ in range(repeats):
                draw()
            timings[name].append((time.thread_time() - began) / repeats)
    return {name: statistics.median(times) for name, times in timings.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, nothing is written")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    rounds = 3 if quick else 25
    rates = {name: LARGE / s for name, s in seconds(generators(LARGE), rounds, 1).items()}
    baseline = rates["torch.randn, float32"]
    print(f"samples a second on one core, {LARGE} at a time (asked: {REQUIRED_RATE:.0e})")
    for name, rate in rates.items():
        print(f"  {name:38s}{rate:12.3e}   {rate / baseline:6.2f} x torch.randn")
    calls: dict[str, dict[str, float]] = {}
    for size in SMALL:
        selected = {name: draw for name, draw in generators(size).items() if name.startswith(("add_", "torch.randn, "))}
        calls[str(size)] = {name: 1e6 * s for name, s in seconds(selected, rounds, 200).items()}
        print(f"microseconds a call, {size} coordinates")
        for name, microseconds in calls[str(size)].items():
            print(f"  {name:38s}{microseconds:9.1f}")
    if quick:
        return
    report = {
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
        "processor": platform.processor() or platform.machine(),
        "threads": 1,
        "allocator": {name: os.environ.get(name) for name in RETAIN},
        "load_average": os.getloadavg(),
        "rounds": rounds,
        "samples_per_second": rates,
        "microseconds_per_call": calls,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
