"""docs/how-much-is-epsilon.md: its numbers are the product's, rounded up, and those of an independent computation."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from mpmath import erfc, exp, mp, mpf, sqrt

from accounting.mechanisms.guessing import guess_chance, rounded_steps
from wardround.accounting import attack_success, calibrate_noise, posterior_bounds

PAGE = (Path(__file__).parents[2] / "docs" / "how-much-is-epsilon.md").read_text()
DELTA, ROUNDS, PRIOR = 1e-5, 30, 0.01
ROWS = dict(re.findall(r"^\| ([^|]+?) \| (.*) \|$", PAGE, re.M))
EPSILONS = [float(cell.partition("=")[2]) for cell in re.findall(r"ε = [\d.]+", re.search(r"^\| \|.*", PAGE, re.M)[0])]


def _stated(row: str) -> list[float]:
    """Return the numbers of a row, as shares."""
    (cells,) = [cells for name, cells in ROWS.items() if name.startswith(row)]
    return [float(cell.split()[0]) / 100 for cell in cells.split(" | ")]


def _normal(x: mpf) -> mpf:
    return erfc(-x / sqrt(2)) / 2


def _of_any(epsilon: float) -> mpf:
    return (exp(epsilon) + mpf(DELTA)) / (1 + exp(epsilon))


def _of_gaussian(epsilon: float) -> mpf:
    """Return Φ(μ/2), with the μ that has exactly this ε (Balle & Wang 2018, theorem 8)."""

    def delta(mu: mpf) -> mpf:
        return _normal(mu / 2 - epsilon / mu) - exp(epsilon) * _normal(-mu / 2 - epsilon / mu)

    low, high = mpf("1e-4"), mpf(20)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) < DELTA else (low, middle)
    return _normal(high / 2)


def _of_suspicion(epsilon: float) -> mpf:
    return PRIOR * exp(epsilon) / (1 - PRIOR + PRIOR * exp(epsilon))


def _of_usual_study(epsilon: float) -> float:
    noise = calibrate_noise(epsilon=epsilon, delta=DELTA, sampling_rate=1.0, steps=ROUNDS)
    return guess_chance([rounded_steps(noise, 1.0, ROUNDS)], releases=ROUNDS)


@pytest.mark.parametrize(
    ("row", "product", "independent"),
    [
        ("game 1", lambda epsilon: attack_success(epsilon, DELTA), _of_any),
        ("the same", _of_usual_study, _of_gaussian),
        ("game 2", lambda epsilon: posterior_bounds(PRIOR, epsilon)[1], _of_suspicion),
    ],
    ids=["any study", "a usual study", "a suspicion"],
)
def test_every_number_is_at_least_the_true_one_and_close_to_it(
    row: str, product: Callable[[float], float], independent: Callable[[float], mpf]
) -> None:
    mp.dps = 30
    for epsilon, stated in zip(EPSILONS, _stated(row), strict=True):
        assert stated >= product(epsilon)
        assert stated >= independent(epsilon)
        # Rounded up to a tenth of a patient of 100, and no further.
        assert stated < independent(epsilon) + 0.0011


def test_the_page_is_about_three_budgets() -> None:
    assert EPSILONS == [0.5, 2, 8]


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    exec(compile(example, "docs/how-much-is-epsilon.md", "exec"), {})
    assert capsys.readouterr().out.startswith("0.8807")
