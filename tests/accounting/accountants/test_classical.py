"""The classical account against the analytic Gaussian, Opacus's PRV bracket, dp-accounting and extended precision."""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from accounting import ClassicalAccountant, Definition, InvalidArgument, Level, Relation, log_moment
from accounting.accountants import renyi
from accounting.accountants.renyi import ORDERS
from accounting.mechanisms import run_losses
from accounting.mechanisms.conversion import epsilons_of
from accounting.mechanisms.divergence import sampled_bound
from accounting.mechanisms.events import kind_moments

# noise multiplier, sampling rate, steps, delta; then epsilon by PLD and by RDP at real orders
WORKLOADS = [
    (1.1, 256 / 60000, 14062, 1e-5, 2.3817, 2.5966),
    (0.7, 512 / 50000, 10000, 1e-5, 14.740, 16.062),
    (1.0, 0.1, 300, 1e-3, 9.050, 10.327),
    (2.0, 0.01, 300, 1e-5, 0.3314, 0.3720),
    (4.0, 1.0, 100, 1e-6, 14.451, 15.328),
]


def account(sigma: float, rate: float, steps: int, delta: float, **kind: Any) -> ClassicalAccountant:
    out = ClassicalAccountant(delta=delta, **kind)
    out.step(noise_multiplier=sigma, sampling_rate=rate, count=steps)
    return out


@pytest.mark.parametrize(("sigma", "rate", "steps", "delta", "pld", "rdp"), WORKLOADS)
def test_the_published_table(sigma: float, rate: float, steps: int, delta: float, pld: float, rdp: float) -> None:
    half_digit = 5e-5 if pld < 9 else 5e-4
    # The table was computed on a grid of 1e-4, a few hundred-thousandths too coarse.
    assert (
        pld * (1 - 5e-5) - half_digit <= account(sigma, rate, steps, delta).epsilon() <= pld * (1 + 1e-4) + half_digit
    )
    found = account(sigma, rate, steps, delta, method="rdp").epsilon()
    # The third row was read from a coarser set of orders than ours.
    assert 0.998 * rdp <= found <= rdp + half_digit


@pytest.mark.quick("2.0-0.01-300-1e-05")
@pytest.mark.parametrize(("sigma", "rate", "steps", "delta"), [w[:4] for w in WORKLOADS[1:4]])
def test_opacus_prv_brackets_the_loss_distribution(sigma: float, rate: float, steps: int, delta: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import PRVAccountant
    peer = PRVAccountant()
    peer.history = [(sigma, rate, steps)]
    lower, _, upper = peer._get_dprv(eps_error=0.01, delta_error=delta / 1000).compute_epsilon(
        delta, delta / 1000, 0.01
    )
    assert lower <= account(sigma, rate, steps, delta).epsilon() <= upper


@pytest.mark.parametrize("sigma", [0.3, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
def test_without_sampling_it_is_the_analytic_gaussian(sigma: float, delta: float) -> None:
    # Balle & Wang 2018, Theorem 8; seven equal steps are one with noise sigma/sqrt(7).
    mu = math.sqrt(7) / sigma

    def excess(epsilon: float) -> float:
        second = math.exp(min(700.0, epsilon + norm.logcdf(-epsilon / mu - mu / 2)))
        return float(norm.cdf(-epsilon / mu + mu / 2)) - second - delta

    truth = 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0, 2000))
    found = account(sigma, 1.0, 7, delta).epsilon()
    assert truth <= found <= truth * (1 + 1e-4) + 1e-6


def test_rdp_is_never_above_the_peers() -> None:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import RDPAccountant
    for sigma, rate, steps, delta, _, _ in WORKLOADS:
        ours = account(sigma, rate, steps, delta, method="rdp").epsilon()
        event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
        google = RdpAccountant().compose(event, steps).get_epsilon(delta)
        opacus = RDPAccountant()
        opacus.history = [(sigma, rate, steps)]
        assert ours <= min(google, opacus.get_epsilon(delta)) * (1 + 1e-8)


@pytest.mark.parametrize("kind", [{}, {"method": "rdp"}, {"method": "rdp", "order": 6.0}], ids=["pld", "rdp", "filter"])
class TestLaws:
    def test_nothing_costs_nothing(self, kind: dict[str, Any]) -> None:
        empty = ClassicalAccountant(delta=1e-5, **kind)
        assert empty.epsilon() == 0
        empty.step(noise_multiplier=1.0, sampling_rate=0.0, count=50)
        assert empty.epsilon() == 0
        assert empty.steps == 50

    def test_n_fold_is_n_times(self, kind: dict[str, Any]) -> None:
        at_once, one_by_one = (ClassicalAccountant(delta=1e-5, **kind) for _ in range(2))
        at_once.step(noise_multiplier=1.5, sampling_rate=0.05, count=40)
        for _ in range(40):
            one_by_one.step(noise_multiplier=1.5, sampling_rate=0.05)
        assert at_once.epsilon() == pytest.approx(one_by_one.epsilon(), rel=1e-12)

    def test_order_does_not_matter(self, kind: dict[str, Any]) -> None:
        steps = [(1.5, 0.05, 20), (3.0, 1.0, 5), (0.9, 0.01, 100), (2.0, 1.0, 3)]
        accounts = [ClassicalAccountant(delta=1e-5, **kind) for _ in range(2)]
        for each, plan in zip(accounts, (steps, steps[::-1]), strict=True):
            for sigma, rate, count in plan:
                each.step(noise_multiplier=sigma, sampling_rate=rate, count=count)
        assert accounts[0].epsilon() == pytest.approx(accounts[1].epsilon(), rel=1e-9)

    def test_monotone_in_noise_rate_and_steps(self, kind: dict[str, Any]) -> None:
        def epsilon(sigma: float, rate: float, count: int) -> float:
            return account(sigma, rate, count, 1e-5, **kind).epsilon()

        assert epsilon(1.0, 0.05, 100) > epsilon(1.2, 0.05, 100) > epsilon(1.2, 0.04, 100) > epsilon(1.2, 0.04, 90)

    def test_epsilon_after_is_what_step_then_gives(self, kind: dict[str, Any]) -> None:
        one = account(1.3, 0.02, 30, 1e-5, **kind)
        before = one.epsilon()
        foreseen = one.epsilon_after(noise_multiplier=2.0, sampling_rate=0.5, count=4)
        assert (one.epsilon(), one.steps) == (before, 30)
        one.step(noise_multiplier=2.0, sampling_rate=0.5, count=4)
        assert one.epsilon() == foreseen > before

    def test_singly_at_once_and_replayed_agree_to_the_last_bit(self, kind: dict[str, Any]) -> None:
        """A ledger is replayed in other portions than it was written: its hash must not depend on them."""
        singly, at_once = (ClassicalAccountant(delta=1e-5, **kind) for _ in range(2))
        for _ in range(1000):
            singly.step(noise_multiplier=1.3, sampling_rate=0.013)
            singly.step(noise_multiplier=4.1, sampling_rate=1.0)
        at_once.step(noise_multiplier=1.3, sampling_rate=0.013, count=1000)
        at_once.step(noise_multiplier=4.1, sampling_rate=1.0, count=1000)
        replayed = ClassicalAccountant.restore(singly.state())
        assert singly.epsilon() == at_once.epsilon() == replayed.epsilon()

    def test_state_survives_json(self, kind: dict[str, Any]) -> None:
        one = account(1.1, 1 / 3, 7, 1e-6, level=Level.CLIENT, **kind)
        one.step(noise_multiplier=math.pi, sampling_rate=1.0, count=2)
        twin = ClassicalAccountant.restore(json.loads(json.dumps(one.state())))
        assert twin.certificate() == one.certificate()

    @pytest.mark.parametrize("bad", [0.0, -1.0, -0.0, math.nan, math.inf, True, "1"])
    def test_bad_noise_is_named_and_changes_nothing(self, kind: dict[str, Any], bad: Any) -> None:
        self.refused(kind, "noise_multiplier", noise_multiplier=bad, sampling_rate=0.1)

    @pytest.mark.parametrize("bad", [-0.1, 1.1, -0.0, math.nan, math.inf])
    def test_bad_rate_is_named_and_changes_nothing(self, kind: dict[str, Any], bad: float) -> None:
        self.refused(kind, "sampling_rate", noise_multiplier=1.0, sampling_rate=bad)

    @pytest.mark.parametrize("bad", [0, -1, 1.5, math.nan, True])
    def test_bad_count_is_named_and_changes_nothing(self, kind: dict[str, Any], bad: Any) -> None:
        self.refused(kind, "count", noise_multiplier=1.0, sampling_rate=0.1, count=bad)

    def refused(self, kind: dict[str, Any], name: str, **step: Any) -> None:
        one = account(1.0, 0.1, 3, 1e-5, **kind)
        before = one.state()
        for act in (one.step, one.epsilon_after):
            with pytest.raises(InvalidArgument) as error:
                act(**step)
            assert error.value.argument == name
        assert one.state() == before


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("delta", {"delta": 0.0}),
        ("delta", {"delta": 1.0}),
        ("delta", {"delta": math.nan}),
        ("method", {"delta": 1e-5, "method": "gdp"}),
        ("order", {"delta": 1e-5, "method": "rdp", "order": 0.0}),
        ("order", {"delta": 1e-5, "method": "pld", "order": 2.0}),
    ],
)
def test_bad_settings(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as error:
        ClassicalAccountant(**settings)
    assert error.value.argument == name


def test_the_filter_reads_one_order_and_its_certificate_says_so() -> None:
    order, delta = 5.5, 1e-6
    one = account(1.2, 0.03, 250, delta, method="rdp", order=order)
    moment = 250 * float(log_moment(order, 1.0, noise_std=1.2, sampling_rate=0.03))
    # Canonne, Kamath & Steinke 2020, Proposition 12, written for the Rényi order a = order + 1.
    a = order + 1
    expected = moment / (a - 1) + math.log((a - 1) / a) - (math.log(delta) + math.log(a)) / (a - 1)
    assert one.epsilon() == pytest.approx(expected, rel=1e-12)
    proof = one.certificate()
    assert (proof.order, proof.adversary, proof.definition) == (order, "adaptive", Definition.CLASSICAL)
    assert account(1.2, 0.03, 250, delta).certificate().adversary == "path"


def test_a_step_kind_is_evaluated_once_and_an_answer_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(name: str, function: Any) -> Any:
        return lambda *args, **kwargs: (calls.append(name), function(*args, **kwargs))[1]

    monkeypatch.setattr(renyi, "kind_moments", counted("moment", renyi.kind_moments))
    monkeypatch.setattr(run_losses, "composed_epsilon", counted("compose", run_losses.composed_epsilon))
    one = ClassicalAccountant(delta=1e-5)
    for _ in range(300):
        one.step(noise_multiplier=1.2345, sampling_rate=0.0321)
    answers = {one.epsilon() for _ in range(5)}
    assert len(answers) == 1
    # Three rounds of orders around the best one; a second account of the same steps needs none.
    assert calls.count("moment") <= 3
    twin = ClassicalAccountant(delta=1e-5, method="rdp")
    twin.step(noise_multiplier=1.2345, sampling_rate=0.0321, count=300)
    assert twin.epsilon() > 0
    assert calls.count("moment") <= 3
    assert calls.count("compose") == 1


@pytest.mark.parametrize("sigma", [1e-3, 0.7, 4.0, 1e9])
@pytest.mark.parametrize("relation", list(Relation))
def test_unsampled_steps_are_read_in_one_round_and_cost_what_the_divergence_says(
    sigma: float, relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(kind: Any, orders: Any, relation: Any) -> Any:
        asked.append(orders.size)
        return kind_moments(kind, orders, relation)

    monkeypatch.setattr(renyi, "kind_moments", counted)
    renyi._closed.cache_clear()
    one = ClassicalAccountant(delta=1e-6, method="rdp", relation=relation)
    one.step(noise_multiplier=sigma, sampling_rate=1.0, count=100)
    distance = 2.0 if relation is Relation.REPLACE_ONE else 1.0
    moments = log_moment(ORDERS, distance, noise_std=sigma, sampling_rate=1.0)
    if relation is Relation.REPLACE_ONE:
        moments = sampled_bound(moments, 1.0)
    assert one.epsilon() == max(0.0, float(epsilons_of(ORDERS, 100 * moments, 1e-6).min()))
    assert asked == [ORDERS.size]


def test_tiny_and_huge_losses_stay_bounded_by_renyi() -> None:
    for sigma, rate, steps, delta in [(100.0, 1e-3, 10000, 1e-6), (0.05, 1.0, 1, 1e-5), (0.01, 1.0, 5, 1e-5)]:
        tight = account(sigma, rate, steps, delta).epsilon()
        assert 0 < tight <= account(sigma, rate, steps, delta, method="rdp").epsilon()


@pytest.mark.slow_cases("1e+200-1e-160-1")
@pytest.mark.parametrize("steps", [1, 10**6])
@pytest.mark.parametrize(
    ("sigma", "rate"), [(1e-200, 0.5), (0.02, 1e-9), (0.05, 0.001), (1.0, 1e-160), (1e6, 1.0), (1e200, 1e-160)]
)
def test_extreme_settings_give_a_bound_and_no_overflow(sigma: float, rate: float, steps: int) -> None:
    tight, loose = (account(sigma, rate, steps, 1e-6, method=method).epsilon() for method in ("pld", "rdp"))
    assert 0 <= tight <= loose
    # One unsampled step is worse than one sampled one.
    assert steps > 1 or loose <= account(sigma, 1.0, 1, 1e-6, method="rdp").epsilon() * (1 + 1e-8)


@pytest.mark.parametrize("field", ["relation", "level", "observer"])
def test_a_word_that_does_not_exist_is_named_with_those_that_do(field: str) -> None:
    with pytest.raises(InvalidArgument, match="must be one of") as error:
        ClassicalAccountant(delta=1e-5, **{field: "replace"})
    assert error.value.argument == field
