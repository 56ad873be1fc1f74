"""The odometer: what it shows sums to one delta, holds simultaneously, and the end-point never moves."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from accounting import ClassicalAccountant, InvalidArgument, LimitExceeded, log_moment
from accounting.accountants.odometer import Odometer

STEP = {"noise_multiplier": 2.0, "sampling_rate": 0.1}


def test_checkpoints_are_read_at_shares_of_delta() -> None:
    odometer, delta = Odometer(delta=1e-5), 1e-5
    for t in range(1, 6):
        odometer.step(**STEP, count=10)
        plain = ClassicalAccountant(delta=delta / (t * (t + 1)), method="rdp")
        plain.step(**STEP, count=10 * t)
        assert odometer.show() == plain.epsilon()
    assert math.fsum(delta / (t * (t + 1)) for t in range(1, 10**5)) < delta
    assert list(odometer.checkpoints) == sorted(odometer.checkpoints)


def test_the_shown_numbers_hold_for_a_reader_who_stops_at_the_worst_moment() -> None:
    """Simulated privacy losses of the plain Gaussian; the reader stops at the first loss above the number shown.

    P(loss > ε_t at some t) ≤ δ; 40,000 runs at δ = 0.05: more than 2,250 failures have probability under 1e-8.
    """
    delta, sigma, rounds, runs = 0.05, 3.0, 40, 40_000
    odometer, shown = Odometer(delta=delta, order=4.0), []
    for _ in range(rounds):
        odometer.step(noise_multiplier=sigma, sampling_rate=1.0)
        shown.append(odometer.show())
    rng = np.random.default_rng(7)
    losses = np.cumsum(rng.normal(1 / (2 * sigma**2), 1 / sigma, (runs, rounds)), axis=1)
    # The hockey-stick is smaller than the tail, so the tail is checked against the tail's conversion (c = 1).
    slack = (np.log1p(4.0) + 4.0 * np.log1p(1 / 4.0)) / 4.0
    assert int((losses > np.array(shown) + slack).any(axis=1).sum()) <= 2250


def test_the_end_point_is_shown_from_the_first_step_and_never_passed() -> None:
    odometer = Odometer(delta=1e-5, mode="end-point", order=8.0, limit_epsilon=3.0)
    assert odometer.show() == 0.0
    taken = 0
    while odometer.allows(**STEP):
        odometer.step(**STEP)
        taken += 1
        assert odometer.show() == 3.0
    with pytest.raises(LimitExceeded):
        odometer.step(**STEP)
    a, moment = 9.0, float(log_moment(8.0, 1.0, noise_std=2.0, sampling_rate=0.1))
    room = (a - 1) * (3.0 - math.log((a - 1) / a)) + math.log(1e-5) + math.log(a)
    assert taken == int(room / moment) > 10


def test_state_survives_json() -> None:
    for odometer in (Odometer(delta=1e-5), Odometer(delta=1e-5, mode="end-point", order=8.0, limit_epsilon=3.0)):
        odometer.step(**STEP, count=3)
        odometer.show()
        twin = Odometer.restore(json.loads(json.dumps(odometer.state())))
        assert twin.state() == odometer.state()
        assert twin.show() == odometer.show()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("delta", {"delta": -0.0}),
        ("mode", {"delta": 1e-5, "mode": "running"}),
        ("order", {"delta": 1e-5, "mode": "end-point", "limit_epsilon": 1.0}),
        ("limit_epsilon", {"delta": 1e-5, "limit_epsilon": 1.0}),
        ("limit_epsilon", {"delta": 1e-5, "mode": "end-point", "order": 8.0}),
        ("limit_epsilon", {"delta": 1e-5, "mode": "end-point", "order": 1.0, "limit_epsilon": 0.1}),
        ("order", {"delta": 1e-5, "order": math.nan}),
    ],
)
def test_bad_settings(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as error:
        Odometer(**settings)
    assert error.value.argument == name
