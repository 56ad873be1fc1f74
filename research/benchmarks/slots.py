"""What it costs that records run in slots of one shape: `python -m research.benchmarks.slots`.

A private step (clipped sum and exact noise) with shapes that follow the batch, and the same step in slots, in turn in
one process on one torch thread. Each figure is the median over rounds of the second's processor time divided by the
first's: on batches of exactly the expected size, and on the same Poisson batches of that expectation. Counted, too: in
how many slots of one pass the same record has another norm.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.model import MIN_PASS_RECORDS
from private_learning.gradients.slots import Slots, slots_for
from private_learning.training.noise import SecureSource, add_noise
from research.benchmarks.private_step import CLIP_NORM, descend, timed
from research.benchmarks.private_step_models import WORKLOADS

RESULTS = Path(__file__).parent / "results" / "slots.json"


def step_of(workload: str, sizes: Sequence[int], expected: int | None) -> Callable[[], None]:
    """One step for each of the sizes; expected: in slots for so many."""
    case = WORKLOADS[workload]
    torch.manual_seed(0)
    model = case.build()
    x, y = case.records(max(sizes))
    gradients, source = PerRecordGradients(model, case.loss), SecureSource()

    def step() -> None:
        for size in sizes:
            slots = None if expected is None else Slots.random(expected, source)
            clipped = gradients.clipped_sum(x[:size], y[:size], clip_norm=CLIP_NORM, slots=slots)
            descend(model, add_noise(clipped, noise_multiplier=1.0, source=source).gradients)

    return step


def elsewhere(workload: str, expected: int) -> int:
    """In how many slots of a pass a record's norm differs from its norm in the first; it lies in all of them."""
    case = WORKLOADS[workload]
    torch.manual_seed(0)
    model, width = case.build(), min(slots_for(expected), MIN_PASS_RECORDS)
    x, y = (value.expand(width, *value.shape[1:]) for value in case.records(1))
    norms = PerRecordGradients(model, case.loss).norms(x, y, slots=Slots(width))
    return int((norms != norms[0]).sum())


def ratio(workload: str, sizes: Sequence[int], expected: int, rounds: int) -> float:
    """Median of processor times in slots over those without."""
    without, within = (step_of(workload, sizes, slots) for slots in (None, expected))
    for step in (without, within):
        step()
    repeats = max(1, min(50, int(0.02 / max(timed(without, 1)[0], 1e-5))))
    pairs = [(timed(without, repeats)[0], timed(within, repeats)[0]) for _ in range(rounds)]
    return statistics.median(second / first for first, second in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--most", type=int, default=600, help="largest batch")
    options = parser.parse_args()
    rounds: int = options.rounds
    torch.set_num_threads(1)
    report: dict[str, object] = {
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "threads": 1,
        "rounds": rounds,
        "load_average": os.getloadavg(),
    }
    draw = np.random.default_rng(0)
    for workload, its in WORKLOADS.items():
        for batch in (size for size in its.batches if size <= options.most):
            poisson = [int(size) for size in draw.poisson(batch, 12)]
            row = {
                "slots": slots_for(batch),
                "slots where a record's norm is another": elsewhere(workload, batch),
                "at the expected size": ratio(workload, [batch], batch, rounds),
                "over Poisson batches": ratio(workload, poisson, batch, max(3, rounds // 3)),
            }
            report[f"{workload}, batch {batch}"] = row
            print(f"{workload}, batch {batch}: {row}", flush=True)
            RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
