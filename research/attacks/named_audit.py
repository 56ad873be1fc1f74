"""The named audit study: what one run of 400,000 canaries proves of a certified ε of 2, over 20 seeds.

    nice python -m research.attacks.named_audit --out research/benchmarks/results/named_audit.json

The model has one parameter for each canary, and each canary's gradient lies along one of them. So the canaries hide
nothing of one another, and a run shows as much as a run with so many of them can (simulation.audit.one_run). Every
step is the engine's own: coins, clipping, exact noise. The gradients are four times as long as the clip norm.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from research.attacks.audit import Canaries
from simulation.audit.attack import CHANCE, OneRun, judged
from simulation.audit.one_run import plan_guesses, right_guesses
from simulation.audit.releases import AttackedStudy, audited, law_of
from simulation.population import Population
from study_protocol.study.settings import StudySettings
from tests.factories.settings import limit, settings

CANARIES, ROUNDS, SIGNAL, DELTA = 400_000, 3, 0.5, 1e-5


def named_study(canaries: int) -> StudySettings:
    """Return three steps at rate 1 whose noise gives one patient μ = 1/2, which is ε 1.99 at δ 1e-5."""
    return audited(
        settings(
            training={"task": "canaries", "task_parameters": {}},
            sampling_rate=1.0,
            noise_multiplier=math.sqrt(ROUNDS) / SIGNAL,
            expected_batch_size=canaries / 2,
            expected_clients=2.0,
            max_steps=ROUNDS,
            limits=[limit("instance", epsilon=20.0, delta=DELTA)],
        )
    )


def attacked(seed: int, canaries: int) -> OneRun:
    """Run the study once and guess."""
    chosen, task = named_study(canaries), Canaries(canaries)
    inside = np.random.default_rng(seed).random(canaries) < 0.5
    population = Population.of({"hospital-1": task.of(np.flatnonzero(inside)), "hospital-2": task.of(np.array([0]))})
    releases = AttackedStudy(chosen, task, population, watched=1).run(seed)
    law = law_of(chosen)
    plan = plan_guesses(law, DELTA, canaries=canaries, chance=CHANCE)
    # A canary that takes part adds −1, the clip norm, to its own coordinate of each sum.
    scores = np.sum([-release.total - 0.5 for release in releases], axis=0)
    right = right_guesses(scores, inside, plan.guesses)
    return judged(law, DELTA, canaries, plan, canaries, right, len(releases))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--canaries", type=int, default=CANARIES)
    options.add_argument("--out", type=Path)
    arguments = options.parse_args()
    logging.getLogger("study_protocol.randomness.source").setLevel(logging.ERROR)
    runs: list[dict[str, Any]] = []
    for seed in range(1, arguments.seeds + 1):
        begun = time.perf_counter()
        found = attacked(seed, arguments.canaries)
        runs.append(asdict(found) | {"share": found.proven / found.certified})
        print(seed, f"{found.proven:.3f} of {found.certified:.3f}", f"{time.perf_counter() - begun:.0f} s", flush=True)
    shares = [run["share"] for run in runs]
    shown = {"confidence": 1 - CHANCE, "least": min(shares), "most": max(shares), "runs": runs}
    text = json.dumps(shown, indent=1)
    if arguments.out is None:
        print(text)
    else:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
