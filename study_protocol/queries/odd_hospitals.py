"""Which hospitals stand out, with the noise counted: values that a study declared impossible, and shares that differ.

All hospitals and columns together, a study without errors has a false finding with probability 1/20 at most.

Impossible values are tested at two levels (as Benjamini, Bogomolov 2014 test selected families). First every hospital
in every cell at `FIRST` in all (Bonferroni). In a cell where one hospital was found, the same error is likely at
others: they are tested by Holm's rule at `HOLM`, divided by the number of such cells. Noise is independent between
hospitals, so the selection does not favour those who are tested then.

Shares are compared with those of the others together. The one that differs most is named and taken out of the
comparison until none differs, at `SHARES` in all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from study_protocol.queries.counting import Floats

FIRST, HOLM, SHARES = 0.005, 0.04, 0.005
# So many patients of a hospital may lie outside of what a study declared, and it does not stand out.
TOLERANCE = 0.01
# A Poisson law with a larger mean is close to a normal one.
_LARGE = 1000.0
# Values of a mean in [-1, 1] that are tried, and how often the grid around the best one is made finer.
_GRID, _FINER = 201, 3


@dataclass(frozen=True)
class NoisedShare:
    """Patients with a property less those without it, and patients with either, both noised. Two of them add up."""

    difference: float
    patients: float
    difference_variance: float
    patients_variance: float

    def __add__(self, other: NoisedShare) -> NoisedShare:
        return NoisedShare(
            self.difference + other.difference,
            self.patients + other.patients,
            self.difference_variance + other.difference_variance,
            self.patients_variance + other.patients_variance,
        )

    @property
    def value(self) -> float:
        """The share of patients with the property, in [0, 1], ½ without a patient."""
        ratio = self.difference / self.patients if self.patients > 0 else 0.0
        return min(1.0, max(0.0, (ratio + 1) / 2))

    def misfit(self, means: Floats) -> Floats:
        """Return the squared distance to each mean, in units of its variance.

        One patient changes the difference by 2, so that Bernstein's inequality adds 2/3 of the distance.
        """
        distance = self.difference - means * self.patients
        sampling = max(self.patients, 0.0) * (1 - means**2)
        variance = self.difference_variance + means**2 * self.patients_variance + sampling
        return distance**2 / np.maximum(variance + 2 / 3 * np.abs(distance), 1e-12)


@dataclass(frozen=True)
class OutsideCount:
    """Patients of one hospital in a cell where hardly any should be, noised, and the number that is tolerated."""

    count: float
    std: float
    tolerated: float

    @property
    def chance(self) -> float:
        """The probability of so many or more, if as many as tolerated are expected: Poisson's law and the noise."""
        std, expected = max(self.std, 1e-9), max(self.tolerated, 0.0)
        if expected > _LARGE:
            return _above((self.count - expected) / math.hypot(std, math.sqrt(expected)))
        counts = range(int(expected + 10 * math.sqrt(expected) + 30))
        logs = (count * math.log(expected) - expected - math.lgamma(count + 1) if expected else 0.0 for count in counts)
        laws = [math.exp(log) for log in logs] if expected else [1.0]
        return min(1.0, sum(law * _above((self.count - count) / std) for count, law in enumerate(laws)))


@dataclass(frozen=True)
class OddHospital:
    """cell: its place in what was tested. chance: the probability of it by chance, in this one comparison."""

    cell: int
    hospital: str
    chance: float


def outside_found(cells: list[Mapping[str, OutsideCount]]) -> list[OddHospital]:
    """Return the hospitals with more patients in a cell than is tolerated, by cell and then by chance."""
    chances = [{hospital: count.chance for hospital, count in cell.items()} for cell in cells]
    tests = sum(map(len, chances))
    first = [{name for name, chance in cell.items() if chance <= FIRST / tests} for cell in chances]
    selected = sum(map(bool, first))
    findings: list[OddHospital] = []
    for place, cell in enumerate(chances):
        if not first[place]:
            continue
        findings += [OddHospital(place, *entry) for entry in _with_others(cell, first[place], HOLM / selected)]
    return findings


def _with_others(chances: dict[str, float], first: set[str], level: float) -> Iterator[tuple[str, float]]:
    """Yield those found first and those that Holm's rule adds at this level, with their chances, rising."""
    rising = sorted(chances.items(), key=lambda entry: entry[1])
    for rank, (hospital, chance) in enumerate(rising):
        if hospital not in first and chance > level / (len(rising) - rank):
            return
        yield hospital, chance


def shares_found(cells: list[Mapping[str, NoisedShare]]) -> list[OddHospital]:
    """Return the hospitals whose share differs from that of the others that were not named before, in each cell."""
    findings: list[OddHospital] = []
    for place, cell in enumerate(cells):
        remaining, level = dict(cell), SHARES / max(1, sum(map(len, cells)))
        # Two differ from each other, and nothing says which one is odd: then the first is named beside the other.
        while len(remaining) > 2 or len(remaining) == len(cell) == 2:
            chance, hospital = min((_difference(name, remaining), name) for name in remaining)
            if chance > level:
                break
            findings.append(OddHospital(place, hospital, chance))
            del remaining[hospital]
    return findings


def together(shares: Mapping[str, NoisedShare], without: set[str]) -> NoisedShare:
    """Return the sum over the other hospitals."""
    return sum((share for name, share in shares.items() if name not in without), NoisedShare(0.0, 0.0, 0.0, 0.0))


def _difference(hospital: str, shares: Mapping[str, NoisedShare]) -> float:
    """Return the chance of such a difference between this one and the others.

    It is the smallest misfit of one common mean, a χ² with one degree of freedom also where a number of patients is
    mostly noise (Guggenberger, Kleibergen, Mavroeidis, Chen 2012, theorem 1).
    """
    share, rest = shares[hospital], together(shares, {hospital})
    low, high, min_misfit = -1.0, 1.0, math.inf
    for _ in range(_FINER):
        means = np.linspace(low, high, _GRID)
        misfits = share.misfit(means) + rest.misfit(means)
        best, width = int(np.argmin(misfits)), (high - low) / (_GRID - 1)
        min_misfit = min(min_misfit, float(misfits[best]))
        low, high = max(-1.0, means[best] - width), min(1.0, means[best] + width)
    return min(1.0, 2 * _above(math.sqrt(max(min_misfit, 0.0))))


def _above(deviations: float) -> float:
    """Return the normal law's probability above so many standard deviations."""
    return math.erfc(deviations / math.sqrt(2)) / 2
