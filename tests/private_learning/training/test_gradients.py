"""Poisson batches: independent coins at a rate that is never above the stated one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from private_learning.training.gradients import poisson_batch
from study_protocol.randomness.source import RandomSource, SecureSource, SeededSource

# Each statistical test is fixed by its seed; with another seed it would raise a false alarm with this probability.
FALSE_ALARM = 1e-3


class Given(RandomSource):
    """A source whose words are prescribed."""

    secure = False

    def __init__(self, values: list[int]) -> None:
        super().__init__()
        self.values = values

    def _key(self) -> bytes:
        raise NotImplementedError

    def words(self, count: int, dtype: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        assert count == len(self.values)
        return np.array(self.values, dtype=dtype)


def test_batch_sizes_are_binomial_and_records_independent() -> None:
    source = SeededSource(1, allow_insecure=True)
    records, rate, batches = 40, 0.15, 20_000
    drawn = np.zeros((batches, records), bool)
    for row in drawn:
        row[poisson_batch(records, rate, source=source)] = True

    sizes = np.bincount(drawn.sum(1), minlength=records + 1)
    expected = batches * stats.binom.pmf(np.arange(records + 1), records, rate)
    big = expected >= 10
    found = np.append(sizes[big], sizes[~big].sum())
    p_sizes = stats.chisquare(found, np.append(expected[big], expected[~big].sum()), sum_check=False).pvalue
    p_records = stats.chi2.sf(((drawn.sum(0) - batches * rate) ** 2 / (batches * rate * (1 - rate))).sum(), records)
    pairs = np.corrcoef(drawn.T)[np.triu_indices(records, 1)] * np.sqrt(batches)
    p_pairs = stats.chi2.sf((pairs**2).sum(), len(pairs))
    assert min(p_sizes, p_records, p_pairs) > FALSE_ALARM
    assert sizes[0] > 0, "empty batches happen"


def test_the_coin_is_a_strict_comparison_with_the_rounded_down_rate() -> None:
    quarter = 1 << 62
    found = poisson_batch(4, 0.25, source=Given([0, quarter - 1, quarter, 2**64 - 1]))
    assert found.tolist() == [0, 1]
    # 0.1 as a float is above one tenth; its threshold is that float exactly, times 2^64.
    numerator, denominator = (0.1).as_integer_ratio()
    threshold = numerator * 2**64 // denominator
    assert threshold * denominator <= numerator * 2**64
    assert poisson_batch(2, 0.1, source=Given([threshold - 1, threshold])).tolist() == [0]
    # Rates below 2^-64 round to never.
    assert poisson_batch(1, 2.0**-70, source=Given([0])).tolist() == []


def test_certain_and_impossible_rates() -> None:
    source = SecureSource()
    assert poisson_batch(5, 1.0, source=source).tolist() == [0, 1, 2, 3, 4]
    assert poisson_batch(5, 0.0, source=source).tolist() == []
    assert poisson_batch(0, 0.5, source=source).tolist() == []
    assert poisson_batch(1000, 0.5, source=source).dtype == np.int64


@pytest.mark.parametrize("rate", [-0.1, 1.0000001, float("nan"), float("inf"), -0.0])
def test_bad_rates_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="sampling_rate"):
        poisson_batch(3, rate, source=SecureSource())


def test_negative_records_are_refused() -> None:
    with pytest.raises(ValueError, match="records"):
        poisson_batch(-1, 0.5, source=SecureSource())
