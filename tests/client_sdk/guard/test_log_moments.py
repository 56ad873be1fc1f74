"""The log-moments that leave a hospital, against extended precision and scipy's own Student t."""

import json
import math

import mpmath
import numpy as np
import pytest
from scipy.stats import t as student

from client_sdk.errors import LedgerDamaged, Refused, TrainingStopped
from client_sdk.guard.log_moments import LogMomentBounds
from study_protocol.study.settings import StudySettings
from tests.factories.settings import settings

PATIENTS = [f"p{i}" for i in range(12)]
FAILURE = 5e-6
STEPS = [np.linspace(0.05, 0.6, 12), np.linspace(0.4, 0.1, 12) ** 2, np.full(12, 0.2) + np.arange(12) / 100]


def study(**bayesian: object) -> StudySettings:
    chosen = {"estimator": "student-t", "orders": [1.0, 3.0], "filter_order": 2.0} | bayesian
    return settings(bayesian=chosen, max_steps=4, training={"algorithm": "fedavg", "local_steps": 2})


def phi(order: int, distance: float, rate: float, std: float) -> mpmath.mpf:
    """log of the binomial sum for integer λ+1, to 40 digits (Triastcyn & Faltings 2020, Theorem 3)."""
    with mpmath.workdps(40):
        n, q, d, s = order + 1, mpmath.mpf(rate), mpmath.mpf(distance), mpmath.mpf(std)
        return mpmath.log(
            mpmath.fsum(
                mpmath.binomial(n, k) * q**k * (1 - q) ** (n - k) * mpmath.exp((k * k - k) * d * d / (2 * s * s))
                for k in range(n + 1)
            )
        )


def student_bound(sums: list[mpmath.mpf], failure: float) -> float:
    """log of mean + t · standard error, for the expectation of e^G."""
    with mpmath.workdps(40):
        values = [mpmath.exp(g) for g in sums]
        m = len(values)
        mean = mpmath.fsum(values) / m
        variance = mpmath.fsum((v - mean) ** 2 for v in values) / (m - 1)
        return float(mpmath.log(mean + student.isf(failure, m - 1) * mpmath.sqrt(variance / m)))


def expected(order: float, norms: list[np.ndarray], failure: float, *, adaptive: bool) -> float:
    ledger_order = int(2 * order + 1 if adaptive else order)
    inflated = [np.minimum(step * (1 + 2.0**-14), 1.0) for step in norms]
    sums = [mpmath.fsum(phi(ledger_order, step[i], 0.5, 1.0) for step in inflated) for i in range(12)]
    bound = student_bound(sums, failure) / (2 if adaptive else 1)
    return min(bound, float(len(norms) * phi(int(order), 1.0, 0.5, 1.0)))


@pytest.mark.parametrize("adversary", ["path", "adaptive"])
def test_running_sums_are_bounded_as_independently_computed(adversary: str) -> None:
    log_moments = LogMomentBounds(study(adversary=adversary), PATIENTS)
    for norms in STEPS[:2]:
        log_moments.measure(norms, rounding=0.0)
    found, adaptive = log_moments.tensors(), adversary == "adaptive"
    filtered = expected(2.0, STEPS[:2], FAILURE, adaptive=adaptive)
    assert found["log-moments/filter"].tolist() == [pytest.approx(filtered, rel=1e-6)]
    assert found["log-moments/filter"][0] >= filtered
    # Two orders and two declared checkpoints: max_steps 4 in rounds of 2 steps.
    for value, order in zip(found["log-moments/moments"], (1.0, 3.0), strict=True):
        oracle = expected(order, STEPS[:2], FAILURE / (2 * 2), adaptive=adaptive)
        assert value == pytest.approx(oracle, rel=1e-6)
        assert value >= oracle
    assert {array.dtype.name for array in found.values()} == {"float64"}


def test_the_terms_are_cumulative_and_survive_a_restart() -> None:
    live = LogMomentBounds(study(), PATIENTS)
    live.measure(STEPS[0], rounding=0.0)
    live.measure(STEPS[1], rounding=0.0)
    again = LogMomentBounds.restore(study(), PATIENTS, live.to_bytes())
    for log_moments in (live, again):
        log_moments.measure(STEPS[2], rounding=0.0)
        log_moments.measure(STEPS[0], rounding=0.0)
    np.testing.assert_array_equal(live.tensors()["log-moments/moments"], again.tensors()["log-moments/moments"])
    oracle = expected(2.0, [STEPS[0], STEPS[1], STEPS[2], STEPS[0]], FAILURE, adaptive=True)
    assert live.tensors()["log-moments/filter"][0] == pytest.approx(oracle, rel=1e-6)


def test_norms_beyond_the_clip_count_as_the_clip_norm_and_cost_the_classical_price() -> None:
    log_moments = LogMomentBounds(study(estimator="betting"), PATIENTS)
    log_moments.measure(np.full(12, 40.0), rounding=0.0)
    assert log_moments.tensors()["log-moments/filter"][0] == pytest.approx(float(phi(2, 1.0, 0.5, 1.0)), rel=1e-6)


def test_rounding_to_the_noise_grid_is_charged_without_passing_the_clip_norm() -> None:
    exact, rounded, top = (LogMomentBounds(study(), PATIENTS) for _ in range(3))
    exact.measure(STEPS[0], rounding=0.0)
    rounded.measure(STEPS[0], rounding=0.01)
    assert rounded.tensors()["log-moments/filter"][0] > exact.tensors()["log-moments/filter"][0]
    # The noise covers clip + rounding; scaled back to the clip norm each distance becomes (d + r) / (1 + r).
    shifted = (np.minimum(STEPS[0] * (1 + 2.0**-14), 1.0) + 0.01) / 1.01 / (1 + 2.0**-14)
    assert rounded.tensors()["log-moments/filter"][0] == pytest.approx(
        expected(2.0, [shifted], FAILURE, adaptive=True), rel=1e-6
    )
    top.measure(np.full(12, 1.0), rounding=0.01)
    assert top.tensors()["log-moments/filter"][0] <= float(phi(2, 1.0, 0.5, 1.0)) * (1 + 1e-6)


def test_lost_rounds_cost_every_record_its_clip_norm() -> None:
    lost, measured = (
        LogMomentBounds(study(estimator="betting"), PATIENTS),
        LogMomentBounds(study(estimator="betting"), PATIENTS),
    )
    lost.charge_lost_rounds(1)
    for _ in range(2):
        measured.measure(np.full(12, 1.0), rounding=0.0)
    assert lost.tensors()["log-moments/filter"][0] == pytest.approx(2 * float(phi(2, 1.0, 0.5, 1.0)), rel=1e-6)
    for log_moments in (lost, measured):
        log_moments.measure(STEPS[0], rounding=0.0)
    assert lost.tensors()["log-moments/filter"][0] == pytest.approx(
        measured.tensors()["log-moments/filter"][0], rel=1e-9
    )


def test_a_patient_who_left_is_charged_at_the_clip_norm() -> None:
    whole = LogMomentBounds(study(), PATIENTS)
    whole.measure(STEPS[0], rounding=0.0)
    rest = [p for p in PATIENTS if p != "p4"]
    keep = [i for i, p in enumerate(PATIENTS) if p != "p4"]
    left = LogMomentBounds.restore(study(), rest, whole.to_bytes())
    left.measure(STEPS[1][keep], rounding=0.0)
    counted = STEPS[1].copy()
    counted[4] = 1.0
    assert left.tensors()["log-moments/filter"][0] == pytest.approx(
        expected(2.0, [STEPS[0], counted], FAILURE, adaptive=True), rel=1e-6
    )


def test_another_order_of_the_records_changes_nothing() -> None:
    first = LogMomentBounds(study(), PATIENTS)
    first.measure(STEPS[0], rounding=0.0)
    again = LogMomentBounds.restore(study(), PATIENTS[::-1], first.to_bytes())
    first.measure(STEPS[1], rounding=0.0)
    again.measure(STEPS[1][::-1], rounding=0.0)
    assert first.tensors()["log-moments/filter"] == again.tensors()["log-moments/filter"]


def test_records_that_appear_later_are_refused() -> None:
    saved = LogMomentBounds(study(), PATIENTS).to_bytes()
    with pytest.raises(Refused, match="new study") as caught:
        LogMomentBounds.restore(study(), [*PATIENTS, "p99"], saved)
    assert caught.value.code == "records-added"
    assert "p99" not in caught.value.detail


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_record_without_a_norm_counts_at_the_clip_norm(bad: float) -> None:
    found, expected = (LogMomentBounds(study(), PATIENTS) for _ in range(2))
    for log_moments, norm in ((found, bad), (expected, 1e9)):
        norms = STEPS[0].copy()
        norms[3] = norm
        log_moments.measure(norms, rounding=0.0)
    assert found.to_bytes() == expected.to_bytes()


def test_a_term_that_is_not_finite_never_leaves() -> None:
    chosen = study(orders=[1.0, 1e300])
    little_noise = chosen.privacy.model_copy(update={"noise_multiplier": 1e-50})
    log_moments = LogMomentBounds(chosen.model_copy(update={"privacy": little_noise}), PATIENTS)
    log_moments.measure(STEPS[0], rounding=0.0)
    with pytest.raises(TrainingStopped, match="log-moments/"):
        log_moments.tensors()


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]"], ids=["empty", "no entries", "list"])
def test_damaged_sums_are_refused(damage: bytes) -> None:
    with pytest.raises(LedgerDamaged):
        LogMomentBounds.restore(study(), PATIENTS, damage)


def test_an_account_without_sums_is_refused() -> None:
    saved = json.loads(LogMomentBounds(study(), PATIENTS).to_bytes()) | {"account": {}}
    with pytest.raises(LedgerDamaged):
        LogMomentBounds.restore(study(), PATIENTS, json.dumps(saved).encode())


def test_sums_of_other_settings_are_refused() -> None:
    saved = LogMomentBounds(study(), PATIENTS).to_bytes()
    with pytest.raises(LedgerDamaged):
        LogMomentBounds.restore(study(filter_order=3.0), PATIENTS, saved)


def test_no_identifier_is_written_down() -> None:
    saved = json.loads(LogMomentBounds(study(), ["anna.miller"]).to_bytes())
    assert "anna.miller" not in json.dumps(saved)


def test_hoelder_sums_are_weighted_step_by_step() -> None:
    log_moments = LogMomentBounds(study(composition="holder", adversary="path"), PATIENTS)
    for norms in STEPS[:2]:
        log_moments.measure(norms, rounding=0.0)
    total = 0.0
    for norms in STEPS[:2]:
        inflated = np.minimum(norms * (1 + 2.0**-14), 1.0)
        # Weight 1/4 over max_steps of 4 steps, and the same share of the failure.
        spread = [4 * phi(2, d, 0.5, 1.0) for d in inflated]
        total += min(student_bound(spread, FAILURE / 4) / 4, float(phi(2, 1.0, 0.5, 1.0)))
    assert log_moments.tensors()["log-moments/filter"][0] == pytest.approx(total, rel=1e-6)


def test_losses_are_shares_of_the_most_that_a_patient_can_lose() -> None:
    log_moments = LogMomentBounds(study(composition="running", estimator="betting", adversary="path"), PATIENTS)
    assert log_moments.losses().tolist() == [1.0] * 12
    for norms in STEPS[:2]:
        log_moments.measure(norms, rounding=0.0)
    inflated = [np.minimum(step * (1 + 2.0**-14), 1.0) for step in STEPS[:2]]
    most = 2 * phi(2, 1.0, 0.5, 1.0)
    due = [float(mpmath.fsum(phi(2, step[i], 0.5, 1.0) for step in inflated) / most) for i in range(12)]
    assert log_moments.losses() == pytest.approx(due, rel=1e-9)
    with pytest.raises(Refused, match="no running sum"):
        LogMomentBounds(study(composition="holder"), PATIENTS).losses()
