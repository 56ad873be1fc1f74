"""Arguments from the edge of what floats hold, and laws of one's own that lie: no ε too small, no traceback."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import pytest

from accounting import (
    BayesianAccountant,
    BayesianSpec,
    ClassicalAccountant,
    ComposedEvent,
    DiscreteGaussianEvent,
    Event,
    FilterSpec,
    GaussianEvent,
    GaussianPair,
    IndividualFilter,
    InvalidArgument,
    LaplaceEvent,
    OutcomePair,
    PairEvent,
    PoissonSampledEvent,
    SelfComposedEvent,
    log_moment,
)


def epsilon(event: Event, count: int = 1, *, delta: float = 1e-5) -> float:
    account = ClassicalAccountant(delta=delta)
    account.compose(event, count)
    return account.epsilon()


@dataclass(frozen=True)
class Told(OutcomePair):
    """A pair of one's own, which tells this divergence at every order."""

    value: float

    @property
    def symmetric(self) -> bool:
        return True

    def divergence(self, order: float) -> float:
        return self.value

    def reverse_divergence(self, order: float) -> float:
        return self.value


@pytest.mark.parametrize("rate", [1.0, 0.5])
class TestLawsOfOnesOwn:
    def test_what_is_not_a_number_is_no_bound(self, rate: float) -> None:
        assert epsilon(PoissonSampledEvent(rate, PairEvent(Told(math.nan)))) == math.inf

    def test_a_negative_divergence_does_not_pay_for_other_events(self, rate: float) -> None:
        account = ClassicalAccountant(delta=1e-5)
        account.compose(LaplaceEvent(2.0))
        account.compose(PoissonSampledEvent(rate, PairEvent(Told(-5.0))))
        with pytest.raises(InvalidArgument, match=r"^pair: Told tells a divergence of -5.0"):
            account.epsilon()

    def test_gaussians_whose_squares_overflow_are_not_free(self, rate: float) -> None:
        for pair in (GaussianPair(1e200, 1e200, 1e200), GaussianPair(1e200, 1e200, 2e200)):
            assert epsilon(PoissonSampledEvent(rate, PairEvent(pair))) == math.inf


class TestTinyDeltas:
    @pytest.mark.parametrize("delta", [1e-40, 1e-60, 1e-100, 1e-200, 1e-270, 1e-318, 5e-324])
    def test_every_delta_has_an_answer_above_the_exact_one(self, delta: float) -> None:
        """One step in closed form: δ(ε) is below what was asked for just where ε is large enough."""
        many = epsilon(PoissonSampledEvent(0.01, GaussianEvent(1.0)), 10, delta=delta)
        one = epsilon(PoissonSampledEvent(0.01, GaussianEvent(1.0)), delta=delta)
        assert 0 < one < many < math.inf
        # P(loss > ε + 1) ≥ δ/(1 − 1/e) would have to hold if ε + 1 were too small; from the tail of the output.
        at = math.log((math.exp(one + 1) - 0.99) / 0.01) + 0.5
        assert math.log(0.01) - (at - 1) ** 2 / 2 < math.log(delta)

    def test_a_delta_too_small_for_a_float_is_not_zero(self) -> None:
        account = ClassicalAccountant(delta=1e-5)
        account.compose(GaussianEvent(1.0))
        assert account.delta_for(500.0) > 0


class TestLargeNumbers:
    @pytest.mark.parametrize("noise", [1e153, 1e160, 1e300])
    def test_noise_beyond_all_squares(self, noise: float) -> None:
        for event in (GaussianEvent(noise), DiscreteGaussianEvent(noise, 1.0)):
            assert 0 <= epsilon(event, 10) < 0.01
            assert epsilon(ComposedEvent([event, GaussianEvent(1.0)])) == pytest.approx(4.3772, rel=1e-4)

    @pytest.mark.parametrize("order", [1e19, 1e300])
    def test_orders_beyond_all_integers(self, order: float) -> None:
        """Their cost is that of no sampling; it was none at all, or no answer."""
        full = order * (order + 1) / 2
        assert float(log_moment(order, 1.0, noise_std=1.0, sampling_rate=0.5)) >= full
        for event in (GaussianEvent(0.5), DiscreteGaussianEvent(10.0, 20.0)):
            account = ClassicalAccountant(delta=1e-5, method="rdp", order=order)
            account.compose(PoissonSampledEvent(0.5, event))
            assert account.epsilon() > 1e18
        sums = IndividualFilter(FilterSpec(order=order, delta=1e-5, limit_epsilon=1.0), members=1)
        assert sums.admit([1.0], noise_std=1.0, sampling_rate=0.5).tolist() == [False]

    def test_more_runs_than_a_float_counts_are_refused(self) -> None:
        account = ClassicalAccountant(delta=1e-5)
        for event, count in (
            (GaussianEvent(1.0), 10**400),
            (SelfComposedEvent(GaussianEvent(1.0), 2**40), 2**40),
        ):
            with pytest.raises(InvalidArgument, match=r"^count:"):
                account.compose(event, count)
        assert account.steps == 0

    def test_as_many_runs_as_may_be_have_an_answer(self) -> None:
        """The Gaussian limit, σ = 1/(√T·q·√(e^{1/100} − 1)), is below what T steps cost."""
        limit = 1 / (math.sqrt(2**52) * 1e-8 * math.sqrt(math.expm1(0.01)))
        found = epsilon(PoissonSampledEvent(1e-8, GaussianEvent(10.0)), 2**52)
        assert epsilon(GaussianEvent(limit)) < found < 1.2 * epsilon(GaussianEvent(limit))
        account = ClassicalAccountant(delta=1e-5)
        for _ in range(8):
            account.compose(PoissonSampledEvent(0.999999, GaussianEvent(0.59)), 2**52)
        assert account.delta_for(1.0) == 1.0


def test_events_that_are_none_are_refused_by_name() -> None:
    with pytest.raises(InvalidArgument, match=r"^events:"):
        ComposedEvent(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"^pair:"):
        PairEvent(None)  # type: ignore[arg-type]
    deep: Event = reduce(lambda event, _: SelfComposedEvent(event, 1), range(5000), GaussianEvent(1.0))
    with pytest.raises(InvalidArgument, match=r"^event: is nested too deeply"):
        ClassicalAccountant(delta=1e-5).compose(deep)


@pytest.mark.parametrize("name", ["relation", "level", "observer"])
def test_words_that_are_none_are_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{name}: must be one of .*, not 'everybody'"):
        ClassicalAccountant(delta=1e-5, **{name: "everybody"})


def test_a_classical_account_of_fewer_steps_caps_nothing() -> None:
    """An empty account would cap every number at ε = 0."""
    spec = BayesianSpec(orders=[4, 8], delta=1e-5, estimator_failure_probability=1e-6, max_steps=9, estimator="betting")
    account, classical = BayesianAccountant(spec), ClassicalAccountant(delta=1e-5)
    account.step([0.1, 0.2, 0.4] * 50, noise_std=4.0, sampling_rate=0.1, max_distance=1.0)
    with pytest.raises(InvalidArgument, match=r"^classical: is of 0 steps, fewer than the 1"):
        account.certificate(classical=classical.certificate())
    classical.step(noise_multiplier=4.0, sampling_rate=0.1)
    assert account.certificate(classical=classical.certificate()).epsilon > 0
