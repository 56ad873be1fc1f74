"""Accuracy at equal ε and δ by the best fixed Rényi order and by the tightest rule, on every table of the data folder.

    python -m research.accuracy.enforcement [--out research/benchmarks/results/enforcement_accuracy.json]

Settings are those of `wardround plan --suggest`: 100 rounds of all records, and a learning rate by the noise. Only the
noise differs, and with it the learning rate. Both rules see the same records and the same draws.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from accounting.plan.limits import Enforcement
from research.accuracy.defaults_data import CASES, TYPICAL, TableCase
from research.accuracy.defaults_run import (
    AVERAGES,
    DELTA,
    DefaultsSetting,
    DefaultsStudy,
    accuracies,
    noise_multiplier,
)
from research.accuracy.defaults_sweep import without_privacy
from research.accuracy.defaults_tables import Floats
from study_protocol.study import suggestion
from study_protocol.study.suggestion import PublicNumbers, relative_noise

EPSILONS, SEEDS, RATE = (1.0, 2.0), 8, 1.0
BEFORE: Enforcement = "renyi-order"
AFTER: Enforcement = "gaussian-filter"


@dataclass(frozen=True)
class AccuracyRow:
    """One table under one limit: noise multipliers, mean accuracies and the mean gain, all in [0, 1] but the noise.

    without  accuracy of all records together without privacy. gain_error: the standard error of the gain over seeds
    """

    case: str
    epsilon: float
    noise_before: float
    noise_after: float
    before: float
    after: float
    gain: float
    gain_error: float
    without: float

    @property
    def lost_before(self) -> float:
        return self.without - self.before

    @property
    def lost_after(self) -> float:
        return self.without - self.after


def setting(case: TableCase, study: DefaultsStudy) -> DefaultsSetting:
    """As it is suggested for the noise that this study's rule needs."""
    split, rounds = case.split(0), suggestion.ROUNDS
    numbers = PublicNumbers(
        hospitals=study.hospitals,
        patients=len(split.labels) / study.hospitals,
        largest=int(np.bincount(split.site).max()),
        parameters=split.inputs.shape[1] * (1 if case.classes == 2 else case.classes),
        classes=case.classes,
    )
    noise = relative_noise(numbers, multiplier(study), rounds)
    travel = suggestion.learning_rate(noise, rounds) * suggestion.CLIP_NORM * rounds
    return DefaultsSetting(RATE, rounds, suggestion.CLIP_NORM, travel)


def multiplier(study: DefaultsStudy) -> float:
    """The least noise multiplier of one hospital under the study's rule."""
    return noise_multiplier(study.scheme, study.counted, study.epsilon, RATE, suggestion.ROUNDS, study.enforcement)


def reached(case: TableCase, study: DefaultsStudy, seeds: int) -> Floats:
    """Accuracies, shape (seeds,)."""
    suggested, place = setting(case, study), AVERAGES.index("exponential")
    return np.array([accuracies(case.split(s), case.classes, study, [suggested], s)[0, place] for s in range(seeds)])


def row(case: TableCase, epsilon: float, seeds: int = SEEDS) -> AccuracyRow:
    """Train under both rules."""
    hospitals = len(np.unique(case.split(0).site))
    studies = [DefaultsStudy("parallel", epsilon, hospitals, rule) for rule in (BEFORE, AFTER)]
    before, after = (reached(case, study, seeds) for study in studies)
    without = [float(without_privacy(case.split(seed))[1]) for seed in range(seeds)]
    gains = after - before
    return AccuracyRow(
        case=case.name,
        epsilon=epsilon,
        noise_before=multiplier(studies[0]),
        noise_after=multiplier(studies[1]),
        before=float(before.mean()),
        after=float(after.mean()),
        gain=float(gains.mean()),
        gain_error=float(gains.std(ddof=1) / seeds**0.5),
        without=float(np.mean(without)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print("points of accuracy lost against all records together without privacy")
    print(f"{'table':16} {'ε':>2}  {'noise':>6} {'':6} {'lost':>6} {'':6} {'gain':>6}")
    rows: list[AccuracyRow] = []
    for case in (case for case in CASES.values() if not case.name.endswith(TYPICAL)):
        for epsilon in EPSILONS:
            line = row(case, epsilon, options.seeds)
            rows.append(line)
            print(
                f"{line.case:16} {epsilon:2g}  {line.noise_before:6.4g} {line.noise_after:6.4g} "
                f"{100 * line.lost_before:6.2f} {100 * line.lost_after:6.2f} {100 * line.gain:+6.2f} "
                f"± {100 * line.gain_error:.2f}",
                flush=True,
            )
    gains = [line.gain for line in rows]
    print(f"mean gain {100 * np.mean(gains):.2f} points, from {100 * min(gains):.2f} to {100 * max(gains):.2f}")
    if options.out is not None:
        result = {
            "seeds": options.seeds,
            "delta": DELTA,
            "rounds": suggestion.ROUNDS,
            "mean_gain": float(np.mean(gains)),
        }
        options.out.write_text(json.dumps(result | {"rows": [asdict(line) for line in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
