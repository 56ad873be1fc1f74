"""Settings of a logistic regression from public numbers alone, and the accuracy to expect of them.

Pure: no data, and no noise is calibrated here. The constants are those that `research.accuracy.defaults` found on the
data sets of docs/planning.md. It fits them and prints them.

All rests on one number, the relative noise ν = z √(K d) / (√T n). z is the noise multiplier of one hospital. There are
K hospitals, d parameters, T rounds, and n patients of all hospitals together. A step is a sum of at most n clipped
gradients and K noises. T noises add up to the length of √T of them, T equal sums to that of T. So ν is the length of
all noise beside the longest way that the data could take the model. At a full batch z grows with √T, so that ν hardly
depends on the number of rounds. It is near √(2 K d ln(1/δ)) / (n ε), in scheme sequential without the K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from study_protocol.study.training import Averaging

CLIP_NORM = 0.5
ROUNDS = 100
AVERAGING = Averaging(name="exponential", decay=0.9)
# How far the model goes at most: TRAVEL / ν^POWER, in steps of at most LONGEST_STEP. Both are lengths of weights.
TRAVEL = 6.7
POWER = 1.0
LONGEST_STEP = 10.0
# Of task additive, at the relative noise of one weight: how far it goes, in steps of at most so much. It was no worse
# than logistic regression (`research.accuracy.additive`) with at least ADDITIVE_PATIENTS, where this noise is at most
# ADDITIVE_NOISE, and ADDITIVE_RANGES or more of the columns are numbers by a range alone. Where the commonest class had
# a larger share than ADDITIVE_COMMONEST, it was up to 1.2 points worse on drawn tables without any curve.
ADDITIVE_TRAVEL = 0.6
ADDITIVE_LONGEST_STEP = 15.0
ADDITIVE_NOISE = 8e-4
ADDITIVE_RANGES = 0.5
ADDITIVE_PATIENTS = 3000
ADDITIVE_COMMONEST = 0.8
# Accuracy lost by a study: LOST_FLOOR + LOST_BY_NOISE · ν · √(classes / 2) + LOST_BY_RANGES · the share of columns that
# are numbers described by a range alone. In four of five studies at most LOST_AT_MOST times as much and MARGIN more. In
# doubt the factor is larger. Without, it leaves room for typical ranges that are guessed half a deviation off
# (`research.accuracy.guessed_ranges`).
LOST_FLOOR = 0.004
LOST_BY_NOISE = 0.3
LOST_BY_RANGES = 0.015
LOST_AT_MOST, LOST_AT_MOST_IN_DOUBT = 2.0, 2.54
MARGIN = 0.015
# Accuracy lost at most where the columns tell the classes apart without error: a multiple of √(ν parameters).
LOST_IF_PARTED = 0.15
# Accuracy lost by n patients alone, without privacy: a median, as a multiple of √(parameters / n).
LOST_ALONE = 0.07
# A hospital alone did better than the study where ν was at least so much of √(parameters / n), with n its patients.
NOISE_LIKE_ALONE = 0.169
# Of the error that naming the commonest class makes: a study that loses more than this share may be no better.
LEARNABLE = 0.12
# The forecast is not sure beyond so much noise, where more than so large a share of the columns are ranges alone, which
# may be skewed, and beyond so many classes.
SURE_NOISE, SURE_RANGES, SURE_CLASSES = 0.1, 0.25, 2

Doubt = Literal["ranges", "classes", "noise"]


@dataclass(frozen=True)
class PublicNumbers:
    """Public numbers that are known before a study of one linear layer.

    hospitals   that take part in every round
    patients    of one hospital, the mean. largest: of the largest hospital
    parameters  of the model: (encoded inputs + 1) · outputs
    classes     values of the label
    commonest   share of the commonest class, if it is known from elsewhere
    ranges      share of all columns that are numbers by a range alone, without a typical range or a logarithm
    """

    hospitals: int
    patients: float
    largest: float
    parameters: int
    classes: int = 2
    commonest: float | None = None
    ranges: float = 1.0


@dataclass(frozen=True)
class AccuracyForecast:
    """Accuracy lost against all patients' records together without privacy, as shares of all (0.01: one point).

    lost    by the study, as was usual. lost_at_most: in four of five studies that it was not fitted to. if_parted:
            where the columns tell the classes apart without error. Each at most what guessing loses
    alone   by the largest hospital alone, without privacy, if its patients are like the others'
    no_better_than_guessing  lost_at_most is as much as guessing loses
    doubts  why the study may lose much more or less
    """

    relative_noise: float
    lost: float
    lost_at_most: float
    if_parted: float
    alone: float
    may_be_below_alone: bool
    commonest: float | None
    no_better_than_guessing: bool = False
    doubts: tuple[Doubt, ...] = ()

    @property
    def may_be_below_commonest(self) -> bool:
        """Whether naming the commonest class may be as good, False if its share is not known."""
        return self.commonest is not None and self.lost >= LEARNABLE * (1 - self.commonest)


def relative_noise(numbers: PublicNumbers, noise_multiplier: float, rounds: int, sampling_rate: float = 1.0) -> float:
    """Return ν, of batches of sampling_rate · n patients.

    >>> round(relative_noise(PublicNumbers(4, 120, 200, 11), noise_multiplier=20.0, rounds=100), 4)
    0.0276
    """
    batch = sampling_rate * numbers.hospitals * numbers.patients
    return noise_multiplier * math.sqrt(numbers.hospitals * numbers.parameters / rounds) / batch


def learning_rate(noise: float, rounds: int, clip_norm: float = CLIP_NORM) -> float:
    """Return the coordinator's learning rate of the mean gradient at this relative noise, with two digits.

    >>> learning_rate(0.0276, 100)
    4.9
    """
    step = min(TRAVEL / noise**POWER / rounds, LONGEST_STEP)
    return float(f"{step / clip_norm:.2g}")


def additive_learning_rate(noise: float, rounds: int, clip_norm: float = CLIP_NORM) -> float:
    """Return the coordinator's learning rate in task additive, with two digits. noise: relative, of one weight.

    >>> additive_learning_rate(0.0005, 100)
    24.0
    """
    step = min(ADDITIVE_TRAVEL / noise / rounds, ADDITIVE_LONGEST_STEP)
    return float(f"{step / clip_norm:.2g}")


def offers_curves(numbers: PublicNumbers, noise: float) -> bool:
    """Return whether task additive is advised in place of logistic regression. noise: relative, of one weight."""
    is_large = numbers.hospitals * numbers.patients >= ADDITIVE_PATIENTS
    is_rare = numbers.commonest is not None and numbers.commonest > ADDITIVE_COMMONEST
    is_of_ranges = numbers.classes == 2 and numbers.ranges >= ADDITIVE_RANGES
    return is_large and is_of_ranges and noise <= ADDITIVE_NOISE and not is_rare


def forecast_accuracy(numbers: PublicNumbers, noise: float) -> AccuracyForecast:
    """Return the expected accuracy at this relative noise, of settings like those that are suggested."""
    lost = LOST_FLOOR + LOST_BY_NOISE * noise * per_class(numbers.classes) + LOST_BY_RANGES * numbers.ranges
    doubts = _doubts(numbers, noise)
    at_most = MARGIN + (LOST_AT_MOST_IN_DOUBT if doubts else LOST_AT_MOST) * lost
    # Guessing is right once in so many classes.
    guessing = 1 - 1 / numbers.classes
    return AccuracyForecast(
        relative_noise=noise,
        lost=min(lost, guessing),
        lost_at_most=min(at_most, guessing),
        if_parted=min(LOST_IF_PARTED * math.sqrt(noise * numbers.parameters), guessing),
        alone=min(LOST_ALONE * math.sqrt(numbers.parameters / numbers.largest), 1.0),
        may_be_below_alone=noise >= NOISE_LIKE_ALONE * math.sqrt(numbers.parameters / numbers.patients),
        commonest=numbers.commonest,
        no_better_than_guessing=at_most >= guessing,
        doubts=doubts,
    )


def _doubts(numbers: PublicNumbers, noise: float) -> tuple[Doubt, ...]:
    is_doubtful: dict[Doubt, bool] = {
        "ranges": numbers.ranges > SURE_RANGES,
        "classes": numbers.classes > SURE_CLASSES,
        "noise": noise > SURE_NOISE,
    }
    return tuple(doubt for doubt, holds in is_doubtful.items() if holds)


def per_class(classes: int) -> float:
    """Return how much more noise costs where a patient speaks for one of many classes, 1 of two."""
    return math.sqrt(classes / 2)
