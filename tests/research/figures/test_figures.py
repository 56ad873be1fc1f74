"""The thesis' figures: numbers against independent computations, and tables, drawings and page held together."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from accounting import EstimatorRefused, upper_mean
from research.figures import clients, holder, instances, joint, orders, page, synthetic, table, training, variational
from research.figures.__main__ import DRAWINGS, PAGE, TABLES, main
from research.figures.catalogue import FIGURES
from research.figures.drawing import specification
from wardround.demo.scenarios import data_folder

EVERY = pytest.mark.parametrize("number", FIGURES)


def stored(number: str) -> list[table.Point]:
    return table.read(TABLES / f"{FIGURES[number].stem}.csv")


def test_all_figures_of_the_two_chapters_are_there() -> None:
    assert list(FIGURES) == [*(f"5.{k}" for k in range(1, 9)), "6.1", "6.2"]


@EVERY
def test_drawing_is_of_the_table_that_is_there(number: str) -> None:
    figure = FIGURES[number]
    drawn = (DRAWINGS / f"{figure.stem}.svg").read_text(encoding="utf-8")
    assert drawn.endswith(f"<!-- table {table.digest(TABLES / f'{figure.stem}.csv')} -->\n")


@EVERY
def test_every_curve_is_drawn_or_said(number: str) -> None:
    figure, points = FIGURES[number], stored(number)
    chart = specification(figure, points)
    shown = {(part["title"], value["curve"]) for part in chart["concat"] for value in part["data"]["values"]}
    assert shown == {(p.panel, p.curve) for p in points if p.panel not in figure.aside}
    assert re.search("[Cc]ertif(ied|ies|y)", figure.caption(points))
    assert all(math.isfinite(p.x) and math.isfinite(p.y) for p in points)


def test_the_page_is_made_from_the_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == page.page(TABLES), "run python -m research.figures all --draw"


@pytest.mark.parametrize("number", ["5.6", "6.1", "6.2"])
def test_a_caption_certifies_no_less_than_its_table(number: str) -> None:
    said, points = FIGURES[number].caption(stored(number)), stored(number)

    def sums(title: str, name: str) -> float:
        return table.last(points, title, name) + table.last(points, f"first round, {title}", name)

    some, many = (setting.title for setting in instances.SETTINGS[:2])
    pattern, wanted = {
        "5.6": (
            r"classical ([\d.]+) .*and ([\d.]+) \(loss",
            lambda: [table.last(points, training.MNIST, name) for name in (training.CLASSICAL, training.LOSS)],
        ),
        "6.1": (
            r"Certified ε is ([\d.]+) for .*and ([\d.]+) for the sum.*clients it is ([\d.]+) and ([\d.]+)\. Seq",
            lambda: [sums(title, name) for title in (some, many) for name in (instances.CHARGED, instances.SUMMED)],
        ),
        "6.2": (r"one record ε = ([\d.]+),", lambda: [table.last(points, joint.INSTANCE, joint.JOINT)]),
    }[number]
    found = re.search(pattern, said)
    assert found is not None
    for shown, value in zip(found.groups(), wanted(), strict=True):
        assert value <= float(shown) <= value * 1.06


def test_a_table_reads_as_it_was_written(tmp_path: Path) -> None:
    points = table.curve("a, b", 'c "d"', (1.0, 2.0, 3.0), (1 / 3, math.inf, 2e-9))
    table.write(tmp_path / "some.csv", points)
    assert table.read(tmp_path / "some.csv") == points == [points[0], points[1]]
    (tmp_path / "some.csv").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="panel, curve, x, y"):
        table.read(tmp_path / "some.csv")


# -- Figure 5.4


def exact_epsilon(order: int, distance: float) -> float:
    """Chernoff's ε from the binomial sum of Theorem 3 in 60 digits, written from the thesis alone."""
    with mpmath.workdps(60):
        q, n = mpmath.mpf(64) / 60000, order + 1
        terms = (
            mpmath.binomial(n, k) * q**k * (1 - q) ** (n - k) * mpmath.exp((k * k - k) * mpmath.mpf(distance) ** 2 / 2)
            for k in range(n + 1)
        )
        return float((10_000 * mpmath.log(mpmath.fsum(terms)) - mpmath.log("1e-5")) / order)


@pytest.mark.slow_cases("0.1-0.052-512")
@pytest.mark.parametrize(
    ("distance", "least", "best"), [(0.1, 0.0520, 512), (0.3, 0.160, 128), (0.5, 0.4137, 32), (1.0, 1.529, 8)]
)
def test_orders_agree_with_a_sum_in_sixty_digits(distance: float, least: float, best: int) -> None:
    points = orders.compute() if distance == 0.1 else stored("5.4")
    values = table.at(points, orders.panel(distance), orders.PRINTED)
    expected = {float(order): exact_epsilon(order, distance) for order in (1, 2, 4, 8, 32, 128, 256, 512)}
    for order, exact in expected.items():
        assert values[order] == pytest.approx(exact, rel=1e-5)
    assert min(expected.values()) == pytest.approx(least, rel=2e-3)
    assert orders.best(points, distance)[1] == best == min(expected, key=expected.__getitem__)


def test_loss_distributions_read_less_than_any_order() -> None:
    points = stored("5.4")
    for distance in orders.CLIP_NORMS:
        exact = table.at(points, orders.panel(distance), orders.EXACT)[1.0]
        assert exact <= min(table.at(points, orders.panel(distance), orders.IMPROVED).values())


# -- Figures 5.1 to 5.3


def test_the_norms_have_the_law_that_is_named() -> None:
    """Kolmogorov and Smirnov with a fixed seed; another seed fails with probability 1e-3."""
    from scipy import stats

    drawn = synthetic.norms(np.random.default_rng(3), 2000)
    assert stats.kstest(drawn, stats.weibull_min(synthetic.SHAPE).cdf).pvalue > 1e-3


def test_the_true_curve_is_an_upper_sum_of_the_integral() -> None:
    """ln E e^{Tφ(min(g, C))} by quadrature over the probability, at q = 1 where φ = λ(λ+1)d²/2s² in closed form."""
    order, noise, clip = 3.0, 2.0, float(synthetic.quantile(0.9))
    cells = np.minimum(synthetic.law_above(), clip)
    found = math.log(np.mean(np.exp(order * (order + 1) * cells**2 / (2 * noise**2))))
    with mpmath.workdps(30):
        shape = mpmath.mpf(synthetic.SHAPE)
        exact = mpmath.log(
            mpmath.quad(
                lambda p: mpmath.exp(order * (order + 1) * (-mpmath.log1p(-p)) ** (2 / shape) / (2 * noise**2)),
                [0, 0.5, 0.9],
            )
            + mpmath.mpf("0.1") * mpmath.exp(order * (order + 1) * mpmath.mpf(clip) ** 2 / (2 * noise**2))
        )
    assert float(exact) <= found <= float(exact) + 1e-3


def test_without_clipping_the_true_bayesian_cost_is_infinite() -> None:
    """The mean of e^{d²} over the law below its 1 − 10^-k quantile passes every bound, however large the noise."""
    for noise in (4.0, 40.0):
        tops = synthetic.quantile(1 - 10.0 ** -np.arange(2.0, 15.0)) if noise < 10 else np.geomspace(1e2, 1e5, 4)
        # A part of the mean: the probability beyond the quantile at least, times the least integrand there.
        parts = -(tops**synthetic.SHAPE) + tops**2 / noise**2
        assert parts[-1] == parts.max()
        assert (np.diff(parts[-3:]) > 0).all()


@pytest.mark.parametrize("number", ["5.1", "5.3"])
def test_the_distribution_free_curve_is_between_truth_and_classical(number: str) -> None:
    points = stored(number)
    for panel in table.panels(points):
        free, most = (table.at(points, panel, name) for name in (synthetic.CERTIFIED, synthetic.CLASSICAL))
        assert all(free[x] <= most[x] for x in free)
        if number == "5.1":
            true = table.at(points, panel, synthetic.TRUE)
            assert all(true[x] <= free[x] * (1 + 1e-5) for x in free)


def test_clipped_curves_are_computed_as_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "NOISES", synthetic.NOISES[8:10])
    computed = {(p.panel, p.curve, p.x): p.y for p in synthetic.by_noise_clipped()}
    kept = {(p.panel, p.curve, p.x): p.y for p in stored("5.1")}
    assert computed == pytest.approx({key: kept[key] for key in computed}, rel=1e-5)
    assert len(computed) == 3 * 4 * 2


# -- Figure 5.5


def test_true_delta_of_the_counterexample_is_the_average_over_people() -> None:
    """Against each person's own Gaussian mechanism in 50 digits."""
    steps, claimed = 20, 2.0
    found = holder.average_delta(np.array([1.0] + [0.05] * 99), steps, claimed)

    def delta(distance: float) -> Any:
        ratio = mpmath.sqrt(steps) * mpmath.mpf(distance) / 4
        return mpmath.ncdf(ratio / 2 - claimed / ratio) - mpmath.exp(claimed) * mpmath.ncdf(
            -ratio / 2 - claimed / ratio
        )

    with mpmath.workdps(50):
        exact = (delta(1.0) + 99 * delta(0.05)) / 100
    assert found == pytest.approx(float(exact), rel=1e-9)


def test_the_product_claims_too_little_and_running_sums_do_not() -> None:
    points = stored("5.5")
    reached, safe = (table.at(points, holder.COUNTER, name) for name in (holder.REACHED, holder.SAFE))
    assert max(reached.values()) > 100 * holder.DELTA
    assert max(safe.values()) <= holder.DELTA
    some = sorted(reached)[len(reached) // 2]
    assert holder.counterexample(int(some)) == pytest.approx((reached[some], safe[some]), rel=1e-5)


def test_holder_meets_the_truth_where_everybody_keeps_a_norm() -> None:
    points = stored("5.5")
    ends = [table.last(points, holder.STORED, name) for name in (holder.HOLDER, holder.TRUE, holder.PRODUCT)]
    assert ends[0] == pytest.approx(ends[1], rel=1e-5)
    assert ends[2] < ends[1]
    fresh = [table.last(points, holder.FRESH, name) for name in (holder.HOLDER, holder.TRUE)]
    assert fresh[0] > fresh[1]


# -- Figures with data


def test_student_t_for_all_clients_at_once_is_the_one_estimator() -> None:
    values = np.random.default_rng(4).gamma(2.0, 0.3, (3, 5, 40))
    found = instances.student_t(values)
    expected = [
        [upper_mean(values[order, client], synthetic.PRINTED_FAILURE, method="student-t") for order in range(3)]
        for client in range(5)
    ]
    assert found == pytest.approx(np.array(expected), rel=1e-9)
    with pytest.raises(EstimatorRefused):
        upper_mean([1.0] * 5, 1e-3, method="student-t")
    assert synthetic.student_t(np.ones((2, 5))).tolist() == [1.0, 1.0]


def test_shards_hold_one_digit_but_for_a_few_and_copies_repeat_images() -> None:
    labels = np.repeat(np.arange(10), 600)
    rows = clients.dealt(labels, 100, iid=False, copies=1, seed=1)
    assert sorted(rows.ravel()) == list(range(6000))
    assert max(len(np.unique(labels[own])) for own in rows) <= 2
    for iid in (True, False):
        many = clients.dealt(labels, 100, iid=iid, copies=3, seed=1)
        assert many.shape == (100, 180)
        assert np.bincount(many.ravel()).tolist() == [3] * 6000


def test_closed_form_sums_are_those_of_the_sdk() -> None:
    import torch
    from torch import nn

    from private_learning.gradients import PerRecordGradients

    draw = np.random.default_rng(5)
    inputs, labels = draw.normal(size=(8, 6)).astype(np.float32), draw.integers(0, 10, 8)
    weights = draw.normal(size=(10, 6)).astype(np.float32)
    model = nn.Linear(6, 10, bias=False)
    model.weight.data = torch.as_tensor(weights)
    theirs = PerRecordGradients(model, nn.CrossEntropyLoss(reduction="none")).clipped_sum(
        torch.as_tensor(inputs), torch.as_tensor(labels), clip_norm=0.7
    )
    ours = clients.Clients.of(inputs, labels, np.arange(8)[None])
    errors = ours.errors(weights)
    assert ours.lengths(errors)[0] == pytest.approx(theirs.norms.numpy(), rel=1e-5)
    assert ours.sums(errors, 0.7)[0].reshape(10, 6) == pytest.approx(theirs.gradients["weight"].numpy(), abs=1e-3)


def test_one_noise_for_both_levels_is_charged_as_the_theorem_says() -> None:
    """ε at client level with multiplier s/C is what is asked; at instance level with n·s/c, by dp-accounting."""
    from dp_accounting import GaussianDpEvent
    from dp_accounting.pld import PLDAccountant

    for ratio, expected in (
        (joint.multiplier(), joint.EPSILON),
        (joint.multiplier() * joint.CLIENT_CLIP * joint.RECORDS / joint.CLIP, joint.instance_epsilon()),
    ):
        theirs = PLDAccountant()
        theirs.compose(GaussianDpEvent(ratio), joint.ROUNDS)
        assert theirs.get_epsilon(joint.DELTA) == pytest.approx(expected, rel=2e-2)
    # The noise is found to one in a thousand, and ε of small steps is as much apart.
    assert table.at(stored("6.2"), joint.INSTANCE, joint.JOINT)[0.0] == pytest.approx(
        joint.instance_epsilon(), rel=1e-3
    )


def test_certified_growth_of_instance_privacy_is_the_worst_case() -> None:
    points, setting = stored("6.1"), instances.SETTINGS[0]
    from accounting import log_moment

    worst = log_moment(synthetic.ORDERS, instances.CLIP, noise_std=instances.NOISE, sampling_rate=0.1)
    grown = synthetic.epsilon(60 * worst) - synthetic.epsilon(worst)
    assert table.last(points, setting.title, instances.CHARGED) == pytest.approx(grown, rel=1e-4)
    for one in instances.SETTINGS:
        own, summed = (table.last(points, one.title, name) for name in (instances.CHARGED, instances.SUMMED))
        assert summed < own


def test_the_printed_inference_claims_a_twentieth_of_its_cost() -> None:
    points = stored("5.8")
    claimed, true = (
        table.at(points, variational.VARIATIONAL, name)[200.0] for name in (variational.CLAIMED, variational.TRUE)
    )
    assert (claimed, true) == pytest.approx((0.110, 2.696), abs=5e-4)


def test_training_keeps_its_classical_account() -> None:
    """Figure 5.6 at its last step against dp-accounting's loss distribution."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    theirs = PLDAccountant()
    theirs.compose(PoissonSampledDpEvent(1024 / 60000, GaussianDpEvent(training.NOISE)), training.STEPS)
    found = table.last(stored("5.6"), training.MNIST, training.LOSS)
    assert found == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-2)


def test_a_figure_without_its_data_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WARDROUND_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["figures", "6.2", "--out", str(tmp_path / "made")])
    clients.features.cache_clear()
    clients.digits.cache_clear()
    assert main() == 1
    said = capsys.readouterr().err
    assert "Figure 6.2 needs MNIST" in said
    assert "WARDROUND_DATA" in said


def test_one_figure_is_computed_and_drawn_into_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    monkeypatch.setattr(sys, "argv", ["figures", "5.2", "--out", str(tmp_path)])
    monkeypatch.setattr(synthetic, "MORE_NOISES", np.array([1.0, 200.0]))
    assert main() == 0
    assert "for the classical number alone" in capsys.readouterr().out
    assert (tmp_path / "figure-5.2.svg").read_text(encoding="utf-8").startswith("<svg")
    monkeypatch.setattr(sys, "argv", ["figures", "5.3", "--draw", "--out", str(tmp_path)])
    assert main() == 1
    assert "leave out --draw" in capsys.readouterr().err


@pytest.mark.slow
def test_a_short_training_on_digits_measures_its_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (data_folder() / "mnist").is_dir():
        pytest.skip("MNIST is not here: set WARDROUND_DATA")
    monkeypatch.setattr(training, "STEPS", 3)
    training.run.cache_clear()
    made = training.run()
    training.run.cache_clear()
    assert made.norms.shape == (3, training.SAMPLE)
    assert made.norms.max() <= training.CLIP_NORM
    assert made.inside.shape == made.outside.shape == (training.PAIRS,)
