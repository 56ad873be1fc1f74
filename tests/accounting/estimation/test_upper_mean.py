"""Upper confidence bounds: closed forms, laws, refusals."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from accounting import EstimatorRefused, InvalidArgument, binary_upper_mean, upper_mean
from accounting.estimation.upper_mean import (
    beta_quantile,
    beta_upper_quantile,
    lower_counts,
    root,
    student_upper_quantile,
)
from accounting.plan.limits import MONOTONE

FREE = ("betting", "band", "bernstein")
TOP = math.log(1000.0)


def test_student_t_is_the_papers_formula() -> None:
    values = np.array([0.10, 0.12, 0.15, 0.09, 0.20, 0.11, 0.13, 0.30])
    y, m = np.exp(values), values.size
    quantile = stats.t.isf(1e-6, m - 1)
    truth = math.log(y.mean() + quantile / math.sqrt(m - 1) * y.std(ddof=0))
    assert upper_mean(values, 1e-6) == pytest.approx(truth, rel=1e-12)


def test_student_t_survives_exponents_no_float_can_hold() -> None:
    values = np.array([1000.0, 1001.0, 1002.0])
    assert upper_mean(values, 0.01) == pytest.approx(1000 + upper_mean(values - 1000, 0.01), rel=1e-12)


def test_student_t_at_failures_below_the_spacing_of_one() -> None:
    values = np.array([0.1, 0.2, 0.3, 0.4])
    assert math.isfinite(upper_mean(values, 1e-30))
    assert upper_mean(values, 1e-30) > upper_mean(values, 1e-15)


@pytest.mark.parametrize("method", ["betting", "band"])
def test_all_at_the_bottom_leaves_the_unseen_mass_at_the_top(method: str) -> None:
    # No method can say less than 1 + (1 − γ^{1/m})(V − 1) when every sample is 1.
    m, gamma = 1000, 5e-6
    floor = math.log(1 + (1 - gamma ** (1 / m)) * 999)
    found = upper_mean(np.zeros(m), gamma, method=method, log_max=TOP)  # type: ignore[arg-type]
    assert floor <= found
    # The bets keep half their stake for this case; the band shares γ over m order statistics.
    split = {"betting": 2, "band": m}[method]
    assert found == pytest.approx(math.log(1 + (1 - (gamma / split) ** (1 / m)) * 999), rel=1e-3)


def test_bernstein_is_maurer_and_pontil() -> None:
    y = np.random.default_rng(0).uniform(0, 1, 50)
    spread = math.log(2 / 0.01)
    bound = y.mean() + math.sqrt(2 * y.var(ddof=1) * spread / 50) + 7 * spread / (3 * 49)
    ours = upper_mean(np.log1p(y * 999), 0.01, method="bernstein", log_max=TOP)
    assert ours == pytest.approx(math.log1p(min(1.0, bound) * 999), rel=1e-9)


def test_band_is_the_worst_law_inside_it() -> None:
    x = np.array([0.2, 1.0, 3.0])
    below = [stats.beta.ppf(0.05 / 3, i, 3 - i + 1) for i in (1, 2, 3)]
    masses = np.diff([0.0, *below, 1.0])
    truth = math.log(masses @ np.exp([*x, 5.0]))
    assert upper_mean(x, 0.05, method="band", log_max=5.0) == pytest.approx(truth, rel=1e-8)


def test_betting_is_the_largest_mean_not_bet_away() -> None:
    y = np.random.default_rng(1).beta(1, 20, 40)
    ours = upper_mean(np.log1p(y * 999), 0.01, method="betting", log_max=TOP)
    mean = math.expm1(ours) / 999
    bets = [1.0, *np.geomspace(1e-3, 0.8, 24)]
    stakes = [0.5] + [0.5 / 24] * 24

    def capital(mu: float) -> float:
        return float(sum(w * np.prod(1 - bet * (y - mu) / (1 - mu)) for w, bet in zip(stakes, bets, strict=True)))

    assert capital(mean) >= 100
    assert capital(mean * (1 - 1e-6)) < 100


@pytest.mark.parametrize("method", FREE)
@pytest.mark.parametrize("log_max", [0.5, 50.0, 5000.0])
def test_within_the_range_at_any_scale(method: str, log_max: float) -> None:
    values = np.random.default_rng(2).uniform(0, log_max, 30)
    found = upper_mean(values, 1e-6, method=method, log_max=log_max)  # type: ignore[arg-type]
    sample_mean = float(mp.log(mp.fsum(mp.exp(v) for v in values) / 30))
    assert sample_mean <= found <= log_max


def test_a_range_of_zero_is_certain() -> None:
    assert all(upper_mean(np.zeros(5), 1e-6, method=m, log_max=0.0) == 0.0 for m in FREE)


@pytest.mark.parametrize("method", ["student-t", *FREE])
def test_counts_are_repetitions_and_order_does_not_matter(method: str) -> None:
    values, counts = np.array([0.1, 0.5, 2.0, 3.0]), np.array([5, 3, 0, 2])
    repeated = np.random.default_rng(3).permutation(np.repeat(values, counts))
    direct = upper_mean(repeated, 1e-3, method=method, log_max=4.0)  # type: ignore[arg-type]
    binned = upper_mean(values, 1e-3, method=method, log_max=4.0, counts=counts)  # type: ignore[arg-type]
    assert binned == pytest.approx(direct, rel=1e-8)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(0, 4), min_size=3, max_size=30),
    which=st.integers(0, 29),
    rise=st.floats(0, 4),
    method=st.sampled_from(sorted(MONOTONE)),
)
def test_monotone_estimators_never_fall_when_a_value_rises(
    values: list[float], which: int, rise: float, method: str
) -> None:
    sample = np.abs(np.array(values))
    higher = sample.copy()
    higher[which % sample.size] = min(4.0, higher[which % sample.size] + rise)
    before = upper_mean(sample, 0.01, method=method, log_max=4.0)  # type: ignore[arg-type]
    after = upper_mean(higher, 0.01, method=method, log_max=4.0)  # type: ignore[arg-type]
    assert after >= before - 1e-7


@pytest.mark.parametrize("method", FREE)
def test_more_failure_allowed_is_a_lower_bound(method: str) -> None:
    values = np.random.default_rng(4).exponential(0.3, 200).clip(max=TOP)
    bounds = [upper_mean(values, g, method=method, log_max=TOP) for g in (1e-9, 1e-6, 1e-3)]  # type: ignore[arg-type]
    assert bounds == sorted(bounds, reverse=True)


def test_many_samples_are_grouped_upwards() -> None:
    values = np.random.default_rng(5).exponential(0.2, 20_000).clip(max=TOP)
    coarse = upper_mean(values, 1e-6, method="betting", log_max=TOP)
    fine = upper_mean(values[:4000], 1e-6, method="betting", log_max=TOP)
    assert coarse < fine
    assert coarse > math.log(np.exp(values).mean())


def test_binary_case_of_the_papers() -> None:
    # 100 zeros, no one: the estimate 0.01 has failure probability 0.99^101 ≈ 0.36.
    assert abs(0.99**101 - 0.36) < 0.005
    assert binary_upper_mean(0, 100, 0.99**101) == pytest.approx(0.01, rel=1e-10)
    assert binary_upper_mean(3, 10, 0.05) == pytest.approx(stats.beta.isf(0.05, 4, 8), rel=1e-12)
    assert binary_upper_mean(0, 0, 0.25) == pytest.approx(0.75, rel=1e-12)


class TestNoisedCounts:
    def test_without_noise_they_are_the_counts(self) -> None:
        assert lower_counts([3, 0, 4], 0.0, 0.01, sample_size=7).tolist() == [3, 0, 4]

    def test_the_sum_is_the_public_number_and_no_count_is_negative(self) -> None:
        rng = np.random.default_rng(6)
        for _ in range(100):
            noisy = rng.integers(-30, 200, 16)
            lowered = lower_counts(noisy, 10.0, 1e-3, sample_size=1000)
            assert lowered.sum() == 1000
            assert (lowered >= 0).all()

    def test_they_are_stochastically_above_the_truth_as_often_as_promised(self) -> None:
        # 2,000 histograms at failure 0.01; P(Binomial(2000, 0.01) > 45) < 1e-6 is the false-alarm rate.
        rng = np.random.default_rng(7)
        truth = np.array([400, 300, 150, 80, 40, 20, 9, 1])
        noise = np.rint(rng.normal(0, 5, (2000, 8))).astype(int)
        failures = sum(
            bool((np.cumsum(lower_counts(truth + z, 5.1, 0.01, sample_size=1000)) > np.cumsum(truth)).any())
            for z in noise
        )
        assert failures <= 45

    @pytest.mark.parametrize("method", sorted(MONOTONE))
    def test_noise_never_lowers_the_bound(self, method: str) -> None:
        rng = np.random.default_rng(8)
        values, truth = np.linspace(0, TOP, 8), np.array([400, 300, 150, 80, 40, 20, 9, 1])
        exact = upper_mean(values, 1e-4, method=method, log_max=TOP, counts=truth)  # type: ignore[arg-type]
        for _ in range(50):
            noisy = truth + np.rint(rng.normal(0, 5, 8)).astype(int)
            # At failure 1e-9 no lowered histogram of these 50 should lie below the truth.
            lowered = lower_counts(noisy, 5.1, 1e-9, sample_size=1000)
            assert upper_mean(values, 1e-4, method=method, log_max=TOP, counts=lowered) >= exact  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("counts", {"counts": [1.5, 2.0]}),
            ("counts", {"counts": []}),
            ("noise_std", {"noise_std": -1.0}),
            ("failure_probability", {"failure_probability": 0.0}),
            ("sample_size", {"sample_size": 0}),
        ],
    )
    def test_bad_arguments(self, name: str, arguments: dict[str, object]) -> None:
        values: dict[str, object] = {
            "counts": [1, 2],
            "noise_std": 1.0,
            "failure_probability": 0.1,
            "sample_size": 3,
        } | arguments
        with pytest.raises(InvalidArgument, match=f"^{name}:"):
            lower_counts(**values)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["student-t", *FREE])
def test_fewer_than_three_samples_are_refused(method: str) -> None:
    with pytest.raises(EstimatorRefused, match="3"):
        upper_mean([0.1, 0.2], 0.01, method=method, log_max=1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("failure_probability", [1e-100, 1e-200, 1e-300])
@pytest.mark.parametrize("method", ["student-t", *FREE])
def test_absurdly_small_failures_are_bounded_or_refused(method: str, failure_probability: float) -> None:
    values = np.linspace(0, 3, 8)
    try:
        found = upper_mean(values, failure_probability, method=method, log_max=5.0)  # type: ignore[arg-type]
    except EstimatorRefused:
        assert method == "student-t"
    else:
        assert found >= upper_mean(values, 1e-50, method=method, log_max=5.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["bernstein", "band"])
def test_where_the_sample_says_nothing_the_bound_is_the_range(method: str) -> None:
    assert upper_mean([5.0] * 5, 1e-6, method=method, log_max=5.0) == 5.0  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [[0.0] * 100, [0.7] * 100, [300.0] * 3])
def test_student_t_refuses_a_sample_without_variance(values: list[float]) -> None:
    with pytest.raises(EstimatorRefused, match="variance"):
        upper_mean(values, 0.01)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("log_values", {"log_values": []}),
        ("log_values", {"log_values": [0.1, float("nan"), 0.2]}),
        ("log_values", {"log_values": [0.1, float("inf"), 0.2]}),
        ("log_values", {"log_values": [0.1, -0.1, 0.2]}),
        ("log_values", {"log_values": [0.1, -0.0, 0.2]}),
        ("log_values", {"log_values": [0.1, 1.1, 0.2]}),
        ("failure_probability", {"failure_probability": 0.0}),
        ("failure_probability", {"failure_probability": 1.0}),
        ("failure_probability", {"failure_probability": float("nan")}),
        ("method", {"method": "mean"}),
        ("log_max", {"log_max": None}),
        ("log_max", {"log_max": float("inf")}),
        ("counts", {"counts": [1, 2]}),
        ("counts", {"counts": [0, 0, 0]}),
        ("counts", {"counts": [1, -1, 3]}),
        ("counts", {"counts": [1, 0.5, 3]}),
    ],
)
def test_bad_arguments_are_refused_by_name(name: str, arguments: dict[str, object]) -> None:
    values: dict[str, object] = {
        "log_values": [0.1, 0.2, 0.3],
        "failure_probability": 0.01,
        "method": "betting",
        "log_max": 1.0,
    } | arguments
    with pytest.raises(InvalidArgument, match=f"^{name}:"):
        upper_mean(values.pop("log_values"), values.pop("failure_probability"), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "ones", "trials"), [("ones", 3, 2), ("ones", -1, 2), ("trials", 0, -1)])
def test_bad_binary_counts(name: str, ones: int, trials: int) -> None:
    with pytest.raises(InvalidArgument, match=f"^{name}:"):
        binary_upper_mean(ones, trials, 0.1)


@pytest.mark.parametrize("probability", [1e-3, 1e-12, 1e-200])
def test_upper_quantiles_keep_small_probabilities(probability: float) -> None:
    assert stats.beta.sf(beta_upper_quantile(3, 98, probability), 3, 98) == pytest.approx(probability, rel=1e-6)
    assert stats.t.sf(student_upper_quantile(9, probability), 9) == pytest.approx(probability, rel=1e-6)


def test_beta_quantile_is_its_laws_inverse() -> None:
    a, b = np.array([1.0, 5.0, 50.0]), np.array([50.0, 46.0, 1.0])
    assert stats.beta.cdf(beta_quantile(a, b, 1e-6), a, b) == pytest.approx([1e-6] * 3, rel=1e-6)


def test_a_root_lies_where_the_sign_changes() -> None:
    assert root(lambda x: x**3 - 2, 0, 5) == pytest.approx(2 ** (1 / 3), abs=1e-8)
