"""One noised step, what was seen of it, and the rows of a ledger that it is charged to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidArgument
from accounting.estimation.upper_mean import Estimator, lower_counts, upper_mean
from accounting.mechanisms.divergence import Values, log_moment, replace_one_moment
from accounting.mechanisms.exact import Direction
from accounting.units import (
    FloatArray,
    Relation,
    check_array,
    check_count,
    check_nonnegative,
    check_positive,
    check_rate,
)

BoolArray = npt.NDArray[np.bool_]

# A run repeats its noise and rate, so one table serves all its steps; worth building from here.
_TABLE_FROM = 2048


@dataclass(frozen=True, kw_only=True)
class Step:
    """The public part: noise, sampling rate, clip norm (None: no bound is known)."""

    noise_std: float
    sampling_rate: float
    max_distance: float | None
    relation: Relation = Relation.ADD_REMOVE
    direction: Direction = "forward"

    def __post_init__(self) -> None:
        check_positive("noise_std", self.noise_std)
        check_rate("sampling_rate", self.sampling_rate)
        if self.max_distance is not None:
            check_nonnegative("max_distance", self.max_distance)

    def costs(self, orders: FloatArray, distances: FloatArray) -> FloatArray:
        """φ, shape (orders, distances)."""
        # Rows may repeat an order with another failure share; each is computed once.
        distinct, inverse = np.unique(orders, return_inverse=True)
        table = self.direction == "forward" and distances.size > _TABLE_FROM
        if self.relation is Relation.REPLACE_ONE:
            found = replace_one_moment(distinct, distances, noise_std=self.noise_std, sampling_rate=self.sampling_rate)
        else:
            found = log_moment(
                distinct,
                distances,
                noise_std=self.noise_std,
                sampling_rate=self.sampling_rate,
                direction=self.direction,
                method="table" if table else "exact",
            )
        return found[inverse]

    def ceiling(self, orders: FloatArray) -> FloatArray:
        """φ at the clip norm, shape (orders,)."""
        return _ceiling(self, tuple(orders.tolist())).copy()


@lru_cache(maxsize=256)
def _ceiling(step: Step, orders: tuple[float, ...]) -> FloatArray:
    # A run repeats its step, and each step asks three times.
    if step.max_distance is None:
        raise InvalidArgument("max_distance", "is required: without it there is no worst case")
    return step.costs(np.array(orders), np.array([step.max_distance]))[:, 0]


@dataclass(frozen=True)
class Rows:
    """The rows of a ledger, each array of shape (rows,).

    orders  ledger orders;  shares  of the failure probability
    once    rows read at a fixed order by a filter: they need one failure share over all steps. A filter may read its
            row every step: it goes wrong only if it admits the first step whose true moment is too large, and that is
            one event at one step
    """

    orders: FloatArray
    shares: FloatArray
    once: BoolArray
    estimator: Estimator

    def bound(self, values: FloatArray, failure: float, top: float, counts: FloatArray | None = None) -> float:
        """log E e^X from a sample of X ≤ top, at one row's share of the failure; inf where no estimate applies."""
        if not np.isfinite(values).all() or (self.estimator != "student-t" and math.isinf(top)):
            return math.inf
        # Rounding may carry a sample past its ceiling, which an estimator would refuse.
        values, log_max = np.minimum(values, top), top if math.isfinite(top) else None
        return upper_mean(values, failure, method=self.estimator, log_max=log_max, counts=counts)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The private part: distances of a sample, or a histogram of them over rounded-up bin edges."""

    distances: FloatArray
    counts: FloatArray | None = None
    count_noise: float = 0.0
    sample_size: int | None = None

    @classmethod
    def of(
        cls,
        distances: Values,
        counts: Values | None,
        count_noise: float,
        sample_size: int | None,
        *,
        max_distance: float | None,
    ) -> Measurement:
        """Checked; distances above the clip norm are a clipping bug and are refused."""
        array = check_array("distances", distances)
        if max_distance is not None and bool((array > max_distance).any()):
            raise InvalidArgument("distances", f"holds {float(array.max())!r}, above max_distance {max_distance!r}")
        noise = check_nonnegative("count_noise", count_noise)
        if counts is None:
            if noise > 0:
                raise InvalidArgument("count_noise", "is the noise of counts; there are none")
            return cls(distances=array)
        values = check_array("counts", counts, low=-np.inf if noise > 0 else 0.0)
        if values.size != array.size:
            raise InvalidArgument("counts", f"has {values.size} entries for {array.size} bin edges")
        if bool((values != np.floor(values)).any()):
            raise InvalidArgument("counts", "must be integers")
        if bool((np.diff(array) <= 0).any()):
            raise InvalidArgument("distances", "are bin edges beside counts: strictly increasing")
        if noise == 0 and values.sum() == 0:
            raise InvalidArgument("counts", "are all zero: an empty sample")
        if noise > 0:
            if sample_size is None:
                raise InvalidArgument("sample_size", "is required with count_noise: noised counts do not sum to it")
            if max_distance is None or array[-1] != max_distance:
                raise InvalidArgument("distances", "end at max_distance when counts carry noise")
            check_count("sample_size", sample_size)
        elif sample_size is not None and values.sum() != check_count("sample_size", sample_size):
            raise InvalidArgument("sample_size", f"is {sample_size}, the counts sum to {int(values.sum())}")
        return cls(distances=array, counts=values, count_noise=noise, sample_size=sample_size)

    def settled_counts(self, estimator_failure_probability: float) -> FloatArray | None:
        """The counts to estimate from; with noise, moved up: too little with at most the failure probability."""
        if self.counts is None or self.count_noise == 0 or self.sample_size is None:
            return self.counts
        return lower_counts(
            self.counts, self.count_noise, estimator_failure_probability, sample_size=self.sample_size
        ).astype(np.float64)
