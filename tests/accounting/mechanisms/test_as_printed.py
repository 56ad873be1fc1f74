"""The four schemes against divergences computed directly, and the mistakes each of them invites."""

from __future__ import annotations

import doctest
import itertools
import math
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from accounting import (
    EstimatorRefused,
    GaussianPair,
    InvalidArgument,
    log_moment,
    replace_one_moment,
    subsampled_moment,
    upper_mean,
)
from accounting.mechanisms import as_printed
from accounting.mechanisms.as_printed import centred_distances, general_subsampled
from accounting.plan.plan import total_noise
from accounting.values import FloatArray

Z = np.linspace(-40, 40, 80_001)
DZ = float(Z[1] - Z[0])


def gaussian(mean: float, std: float = 1.0) -> FloatArray:
    """Log-density on the grid."""
    return -((Z - mean) ** 2) / (2 * std**2) - math.log(std * math.sqrt(2 * math.pi))


def mixture(rate: float, sampled: FloatArray, rest: FloatArray) -> FloatArray:
    return np.logaddexp(math.log(rate) + sampled, math.log1p(-rate) + rest)


def divergence(order: float, p: FloatArray, q: FloatArray) -> float:
    """log E_Q (P/Q)^{λ+1} of two log-densities, by the rectangle rule."""
    exponents = p + order * (p - q)
    top = float(exponents.max())
    return top + math.log(float(np.exp(exponents - top).sum() * DZ))


class TestClientLevel:
    def test_centred_distances_shrink_with_agreement_and_never_pass_the_clip_norm(self) -> None:
        rng = np.random.default_rng(3)
        centre = rng.normal(size=50)
        updates = centre + 0.01 * rng.normal(size=(20, 50))
        near = centred_distances(updates, centre, clip_norm=1.0)
        far = centred_distances(updates, np.zeros(50), clip_norm=1.0)
        assert (near >= np.linalg.norm(updates - centre, axis=1)).all()
        assert near.max() < 0.2
        assert (far == 1.0).all()

    def test_a_distance_is_never_below_the_exact_one(self) -> None:
        """In 50 digits: many coordinates lose units in the last place, tiny ones their squares, huge ones overflow."""
        rng = np.random.default_rng(4)
        cases = [rng.normal(size=(3, 100_000)), np.full((1, 3), 1e-170), np.full((1, 3), 1e300), np.ones((1, 77))]
        for updates in cases:
            found = centred_distances(updates, np.zeros(updates.shape[1]), clip_norm=1e308)
            for row, distance in zip(updates, found.tolist(), strict=True):
                with mp.workdps(50):
                    exact = mp.sqrt(mp.fsum(mp.mpf(x) ** 2 for x in row.tolist()))
                    assert exact <= distance <= exact * (1 + mp.mpf(1e-10))
        assert centred_distances(np.full((1, 2), 1e308), np.full(2, -1e308), clip_norm=2.0).tolist() == [2.0]
        assert centred_distances(np.zeros((1, 2)), np.zeros(2), clip_norm=2.0).tolist() == [0.0]

    def test_pair_distances_under_the_add_remove_formula_understate_replacement(self) -> None:
        """Two clients that nearly agree are exchanged: the truth by quadrature, c^L at their distance, the bound."""
        for order, rate, mine in itertools.product((2.0, 8.0), (0.01, 0.1), (1.0, 2.0)):
            other = mine / 2
            p, q = (mixture(rate, gaussian(mean), gaussian(0)) for mean in (mine, other))
            truth = max(divergence(order, p, q), divergence(order, q, p))
            wrong = float(log_moment(order, mine - other, noise_std=1.0, sampling_rate=rate))
            sound = float(replace_one_moment(order, mine - other, noise_std=1.0, sampling_rate=rate))
            assert 2 * wrong < truth <= sound


class TestSequential:
    def test_the_papers_form_is_the_sum_at_b_over_n(self) -> None:
        sizes, batch = [600, 300, 100], 20
        rates = [batch / sum(sizes) for _ in sizes]
        costs = np.array([log_moment([2.0, 8.0], 1.0, noise_std=1.0, sampling_rate=q) for q in rates])
        found = as_printed.sequential_as_in_papers(costs)
        assert found == pytest.approx(costs[0] * 3, rel=1e-9)
        assert (found >= [math.fsum(column) for column in costs.T]).all()

    def test_with_visible_updates_the_papers_form_is_a_fraction_of_the_loss(self) -> None:
        """Who sees the client's own update sees sampling at B_i/N_i and this client's noise alone."""
        clients, batch, records, order = 10, 50, 500, 8.0
        paper = clients * float(log_moment(order, 1.0, noise_std=1.0, sampling_rate=batch / (clients * records)))
        rate = batch / records
        truth = divergence(order, mixture(rate, gaussian(1), gaussian(0)), gaussian(0))
        sound = float(as_printed.sequential_charge(order, 1.0, sampling_rate=rate, noise_stds=[1.0], participation=1.0))
        assert paper < truth / 5
        assert truth <= sound <= truth * (1 + 1e-6)

    @pytest.mark.parametrize("participation", [0.3, 1.0])
    def test_detectable_participation_breaks_the_papers_form_and_not_the_sound_one(self, participation: float) -> None:
        """Clients' common parts differ so much that the sum shows who took part; both directions.

        Who sees participation sees the client's own rounds at B_i/N_i: a lottery over rounds, known to the observer.
        """
        clients, rate, order, std = 5, 0.2, 8.0, 1.0
        total = std * math.sqrt(clients)
        p, q = mixture(rate, gaussian(1, total), gaussian(0, total)), gaussian(0, total)
        inside = [divergence(order, *pair) for pair in ((p, q), (q, p))]
        truth = max(math.log(1 - participation + participation * math.exp(x)) for x in inside)
        sound = float(
            as_printed.sequential_charge(
                order, 1.0, sampling_rate=rate, noise_stds=[std] * clients, participation=participation
            )
        )
        assert truth <= sound <= truth * (1 + 1e-6)
        # The papers' form with every assumption granted but secrecy: B_i/N over the clients that take part.
        shared = float(log_moment(order, 1.0, noise_std=total, sampling_rate=participation * rate / clients))
        assert clients * shared < truth

    def test_secret_participation_is_jointly_convex(self) -> None:
        """P = α·(sampled Gaussian) + (1−α)·Q against Q, when the sum does not betray who took part."""
        for alpha, rate, order in itertools.product((0.1, 0.7), (0.05, 0.5), (1.5, 6.0)):
            q = gaussian(0)
            p = mixture(alpha, mixture(rate, gaussian(1), q), q)
            truth = max(divergence(order, p, q), divergence(order, q, p))
            sound = float(
                as_printed.sequential_charge(order, 1.0, sampling_rate=rate, noise_stds=[1.0], participation=alpha)
            )
            assert truth <= sound * (1 + 1e-9)

    def test_the_noise_of_others_makes_a_step_cheaper(self) -> None:
        alone = log_moment([3.0], 0.5, noise_std=1.0, sampling_rate=0.1)
        helped = as_printed.sequential_charge([3.0], 0.5, sampling_rate=0.1, noise_stds=[1.0] * 10, participation=1.0)
        assert helped < alone / 5


class TestParallel:
    def test_cumulative_maximum_is_at_most_the_sum_of_maxima(self) -> None:
        rng = np.random.default_rng(5)
        rounds = rng.exponential(size=(30, 7, 4))
        cumulative = as_printed.parallel_maximum(rounds.sum(axis=0))
        assert (cumulative <= rounds.max(axis=1).sum(axis=0)).all()
        assert (cumulative >= rounds.sum(axis=0)).all()

    def test_log_sum_exp_lies_between_the_maximum_and_ln_k_over_rho_above_it(self) -> None:
        rng = np.random.default_rng(11)
        for clients, rho in itertools.product((1, 3, 50, 1000), (0.5, 5.0, 200.0)):
            values = rng.exponential(size=clients) * 10 ** rng.uniform(-3, 2)
            bound = as_printed.log_sum_exp_bound(values, rho)
            assert values.max() <= bound <= (values.max() + math.log(clients) / rho) * (1 + 1e-9)


class TestJoint:
    def test_removing_a_client_also_removes_its_noise_and_that_shows(self) -> None:
        """K shares against K−1, an update of zero, in p dimensions: closed-form Rényi divergence of order 2."""
        clients, dimension = 100, 100_000
        removed, kept = (clients - 1) / clients, 1.0
        # D_2(N(0, a I_p) ‖ N(0, b I_p)) = (p/2)·(ln(b/a) + ln(b/(2b − a)))
        mixed = 2 * kept - removed
        removal = dimension / 2 * (math.log(kept / removed) + math.log(kept / mixed))
        assert removal == pytest.approx(5.0, abs=0.05)
        zeroed = as_printed.joint_terms([1.0], [0.0], noise_stds=[0.1] * clients)
        assert float(zeroed[0, 0]) == 0.0

    def test_honest_shares_carry_the_noise(self) -> None:
        share = 2.0 / math.sqrt(5)
        terms = as_printed.joint_terms([1.0, 4.0], [0.5, 1.0], noise_stds=[share] * 5)
        exact = log_moment([1.0, 4.0], [0.5, 1.0], noise_std=2.0, sampling_rate=1.0)
        assert terms == pytest.approx(np.asarray(exact), rel=1e-12)
        surplus = as_printed.joint_terms([1.0, 4.0], [0.5, 1.0], noise_stds=[share] * 9)
        assert (surplus < terms).all()

    def test_sampling_is_credited_only_when_the_noise_is_constant(self) -> None:
        with pytest.raises(InvalidArgument, match="constant_noise"):
            as_printed.joint_terms([1.0], [1.0], noise_stds=[1.0], sampling_rate=0.5)
        credited = as_printed.joint_terms([1.0], [1.0], noise_stds=[1.0], sampling_rate=0.5, constant_noise=True)
        exact = log_moment([1.0], [1.0], noise_std=1.0, sampling_rate=0.5)
        assert credited == pytest.approx(exact, rel=1e-12)

    def test_shares_that_come_and_go_show_even_without_a_signal(self) -> None:
        """Why: with rate q a client's noise appears or not; in many dimensions that alone is a large divergence."""
        dimension, share = 10_000, 1 / 50
        b, a = 1.0, 1.0 + share
        assert dimension / 2 * (math.log(b / a) + math.log(b / (2 * b - a))) > 1.5


PAGE = Path(__file__).parents[3] / "docs" / "definitions" / "as-printed.md"


def test_the_page_gives_the_numbers_that_come_out() -> None:
    """Each printed formula beside the true number, as the page shows them."""
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 25
    assert result.failed == 0
    text = PAGE.read_text()
    printed = [name for name, value in vars(as_printed).items() if callable(value) and name in as_printed.__dict__]
    for name in ("product_composition", "general_subsampled", "basic_composition", "student_t_from_summary"):
        assert name in printed
        assert f"as_printed.{name}(" in text
    assert "as_printed.sum_of_maxima(" in text


class TestCompositionAsPrinted:
    def test_the_product_is_the_sum_of_the_rounds_own_averages(self) -> None:
        costs = np.random.default_rng(2).exponential(size=(7, 40))
        direct = math.fsum(math.log(np.mean(np.exp(row))) for row in costs)
        assert direct <= as_printed.product_composition(costs) <= direct * (1 + 1e-9)

    def test_basic_composition_adds_up(self) -> None:
        epsilon, delta = as_printed.basic_composition([(0.5, 1e-6)] * 3)
        assert 1.5 <= epsilon <= 1.5 * (1 + 1e-12)
        assert 3e-6 <= delta <= 3e-6 * (1 + 1e-12)

    def test_the_general_theorem_is_a_bound_on_both_directions_and_first_order_in_the_rate(self) -> None:
        pair = GaussianPair(1.0, 2.0, 2.0)
        for order, rate in itertools.product((1, 3, 8), (1e-3, 0.1, 1.0)):
            printed = general_subsampled(order, pair, sampling_rate=rate)
            assert printed >= subsampled_moment(order, pair, sampling_rate=rate)
        # The sum itself, in 30 digits.
        with mp.workdps(30):
            terms = [
                mp.binomial(4, k) * mp.mpf(0.1) ** k * mp.mpf(0.9) ** (4 - k) * mp.exp(k * (k + 1) / mp.mpf(8))
                for k in range(5)
            ]
            exact = mp.log(mp.fsum(terms))
            assert exact <= general_subsampled(3, pair, sampling_rate=0.1) <= exact * (1 + mp.mpf(1e-6))
        small, smaller = (general_subsampled(3, pair, sampling_rate=q) for q in (2e-4, 1e-4))
        assert small / smaller == pytest.approx(2, rel=1e-2)
        assert general_subsampled(3, pair, sampling_rate=0.0) == 0.0

    def test_student_t_reads_a_sample_by_its_summary(self) -> None:
        sample = np.random.default_rng(8).normal(0.3, 0.05, size=60)
        values = np.exp(sample)
        summary = as_printed.student_t_from_summary(float(values.mean()), float(values.std()), 60, 1e-3)
        assert summary == pytest.approx(upper_mean(sample, 1e-3, method="student-t"), rel=1e-9)
        for mean, deviation, count in ((1.1, 0.0, 100), (1.1, 0.1, 2)):
            with pytest.raises(EstimatorRefused):
                as_printed.student_t_from_summary(mean, deviation, count, 1e-3)


@pytest.mark.parametrize(
    ("name", "call", "values"),
    [
        ("log_moments", as_printed.product_composition, {"log_moments": [[math.nan]]}),
        ("order", general_subsampled, {"order": 0, "pair": GaussianPair(1, 1, 1), "sampling_rate": 0.1}),
        ("guarantees", as_printed.basic_composition, {"guarantees": []}),
        ("guarantees", as_printed.basic_composition, {"guarantees": [(1.0, 1e-5, 2.0)]}),
        (
            "mean",
            as_printed.student_t_from_summary,
            {"mean": 0.0, "deviation": 1.0, "count": 9, "failure_probability": 0.1},
        ),
        ("costs", as_printed.sum_of_maxima, {"costs": [[1.0]]}),
        ("clip_norm", centred_distances, {"updates": [[1.0]], "centre": [0.0], "clip_norm": 0.0}),
        ("centre", centred_distances, {"updates": [[1.0, 2.0]], "centre": [0.0], "clip_norm": 1.0}),
        ("updates", centred_distances, {"updates": [[math.nan]], "centre": [0.0], "clip_norm": 1.0}),
        ("costs", as_printed.sequential_as_in_papers, {"costs": [[-1.0]]}),
        ("ledgers", as_printed.parallel_maximum, {"ledgers": [[math.inf]]}),
        ("sharpness", as_printed.log_sum_exp_bound, {"values": [1.0], "sharpness": math.nan}),
        ("noise_stds", total_noise, {"noise_stds": [1.0, 0.0]}),
        ("noise_stds", total_noise, {"noise_stds": []}),
        (
            "participation",
            as_printed.sequential_charge,
            {"orders": 2.0, "distances": 1.0, "sampling_rate": 0.1, "noise_stds": [1.0], "participation": -0.0},
        ),
    ],
)
def test_bad_input_is_named(name: str, call: Any, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as error:
        call(**values)
    assert error.value.argument == name
