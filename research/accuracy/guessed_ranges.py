"""What studies lose on made-up records whose typical ranges a study lead guessed, and what was forecast.

    python -m research.accuracy.guessed_ranges    one line for each family and ε, 3 minutes on one core

`research.accuracy.defaults` takes the typical ranges of the records themselves. Here the middle of each is off by half
a standard deviation on average, and its width by a factor of e^±0.3. In the families "without error" the columns tell
the classes apart. Losses are means of 8 seeds, in points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from private_learning.tasks.columns import encode_columns
from private_learning.tasks.declared_columns import NumberColumn
from private_learning.tasks.typical import rounded_outward
from research.accuracy.defaults_data import deal
from research.accuracy.defaults_run import DefaultsSetting, DefaultsStudy, accuracies, noise_multiplier
from research.accuracy.defaults_sweep import AVERAGES, SEEDS, without_privacy
from research.accuracy.defaults_tables import Floats, Labels
from study_protocol.study import suggestion
from study_protocol.study.suggestion import AccuracyForecast, PublicNumbers, forecast_accuracy

OFF, WIDER = 0.5, 0.3
# 90 % of a normal variable lie within so many standard deviations.
_NORMAL_95 = 1.645


@dataclass(frozen=True)
class Family:
    """Records that are drawn.

    patients  of each hospital
    alike     correlation of every fifth column
    skew      standard deviation of the logarithms, 0: the columns are normal
    slope     of the log-odds beside the risk's standard deviation
    """

    name: str
    hospitals: int
    patients: int
    columns: int
    alike: float
    skew: float
    slope: float = 2.0

    def records(self) -> tuple[Floats, Labels]:
        random = np.random.default_rng(self.columns * self.patients)
        count = round(self.hospitals * self.patients / 0.8)
        shared = random.standard_normal((count, 5))[:, np.arange(self.columns) % 5]
        noise = random.standard_normal((count, self.columns))
        values = np.sqrt(self.alike) * shared + np.sqrt(1 - self.alike) * noise
        risk = values @ random.standard_normal(self.columns)
        chance = 1 / (1 + np.exp(np.clip(-self.slope * risk / risk.std(), -60, 60)))
        return values, (random.random(count) < chance).astype(np.int64)

    def column(self, place: int, values: Floats) -> tuple[NumberColumn, Floats]:
        """Return a column as it was guessed, and its numbers."""
        random = np.random.default_rng(place)
        middle, half = OFF * random.standard_normal(), _NORMAL_95 * np.exp(WIDER * random.standard_normal())
        scale: Callable[[Floats], Floats] = np.exp if self.skew else np.asarray
        width = self.skew or 1.0
        ends, numbers = scale(width * np.array([middle - half, middle + half])), scale(width * values)
        low, high = (0.0, float(np.exp(8 * width))) if self.skew else (-8.0, 8.0)
        typical = rounded_outward(float(ends[0]), float(ends[1]))
        return NumberColumn(f"c{place}", low, high, None, typical=typical, log=bool(self.skew)), numbers


FAMILIES = (
    *(Family(f"skewed, alike {alike:g}", 3, 380, 19, alike, 0.9) for alike in (0.0, 0.5, 0.9)),
    Family("two hospitals", 2, 360, 10, 0.5, 0.7),
    Family("many small", 10, 60, 8, 0.3, 0.7),
    Family("four small", 4, 100, 6, 0.1, 0.8),
    Family("forty columns", 4, 400, 40, 0.3, 0.5),
    Family("no skew", 4, 200, 8, 0.3, 0.0),
    Family("weak", 4, 250, 12, 0.3, 0.0, slope=0.7),
    Family("without error, 5", 4, 200, 5, 0.0, 0.0, slope=1e3),
    Family("without error, 10", 3, 100, 10, 0.2, 0.0, slope=1e3),
    Family("without error, 20", 4, 400, 20, 0.3, 0.0, slope=1e3),
)


def lost(family: Family, epsilon: float) -> tuple[float, AccuracyForecast]:
    """Return what the suggested settings lose, and what is forecast."""
    values, labels = family.records()
    described = [family.column(place, values[:, place]) for place in range(family.columns)]
    inputs = encode_columns([column for column, _ in described], {column.name: cells for column, cells in described})
    inputs = np.column_stack([inputs, np.ones(len(inputs))])
    numbers = PublicNumbers(family.hospitals, family.patients, family.patients, family.columns + 1, ranges=0.0)
    rounds, clip_norm = suggestion.ROUNDS, suggestion.CLIP_NORM
    multiplier = noise_multiplier("parallel", 1, epsilon, 1.0, rounds, "gaussian-filter")
    noise = suggestion.relative_noise(numbers, multiplier, rounds)
    setting = DefaultsSetting(1.0, rounds, clip_norm, suggestion.learning_rate(noise, rounds) * rounds * clip_norm)
    study = DefaultsStudy("parallel", epsilon, family.hospitals, "gaussian-filter")
    place, losses = AVERAGES.index(suggestion.AVERAGING.name), list[float]()
    for seed in range(SEEDS):
        split = deal(inputs, labels, seed, family.hospitals, None)
        reached = accuracies(split, 2, study, [setting], seed)[0, place]
        losses.append(without_privacy(split)[1] - reached)
    return float(np.mean(losses)), forecast_accuracy(numbers, noise)


def main() -> None:
    print("family                ε   lost  forecast  at most  without error")
    for family in FAMILIES:
        for epsilon in (1.0, 2.0):
            found, expected = lost(family, epsilon)
            figures = (found, expected.lost, expected.lost_at_most, expected.if_parted)
            print(f"{family.name:20} {epsilon:g}", *(f"{100 * figure:7.1f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
