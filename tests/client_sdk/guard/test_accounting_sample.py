"""The accounting sample: drawn evenly, once, and what its records are told apart by later."""

import logging
import math

import numpy as np
import pytest
from scipy.stats import chi2

from client_sdk.errors import ConfigurationError, Refused
from client_sdk.guard.charges import Charge
from client_sdk.guard.individual import IndividualBudget
from client_sdk.guard.log_moments import LogMomentBounds, SampledRecords, accounted
from client_sdk.guard.policy_limits import IndividualLimit
from private_learning.tasks import load
from private_learning.training import LocalTraining
from private_learning.training.weights import weights_of
from study_protocol.randomness.source import SecureSource, SeededRandomness, SeededSource
from study_protocol.study.privacy import AccountingSample
from study_protocol.study.settings import StudySettings
from tests.client_sdk.guard.test_log_moments import phi
from tests.factories.hospitals import records
from tests.factories.settings import BAYESIAN, TASK_PARAMETERS, settings

PATIENTS = [f"p{i}" for i in range(12)]
MEMBERS, HELD_OUT = AccountingSample(records=5, source="members"), AccountingSample(records=5, source="held-out")
NOISED = {"disclosure": "noised", "histogram_noise": {"std": 8.0, "every": 2}}
SOURCE = SecureSource()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def study(accounting_sample: AccountingSample, **privacy: object) -> StudySettings:
    chosen = {"max_steps": 4, "bayesian": True} | privacy
    return settings(accounting_sample=accounting_sample.model_dump(), **chosen)


def test_every_record_is_drawn_as_often_as_any_other() -> None:
    """Inclusions of 12 records over 3,000 draws of 5; false alarm 1e-4 under a fixed seed."""
    source, counts, draws = SeededSource(8, allow_insecure=True), np.zeros(12), 3000
    names = {d: i for i, d in enumerate(SampledRecords.draw(None, PATIENTS, source).digests)}
    for _ in range(draws):
        drawn = [names[d] for d in SampledRecords.draw(MEMBERS, PATIENTS, source).digests]
        assert len(set(drawn)) == 5
        counts[drawn] += 1
    expected = draws * 5 / 12
    # Without repetition the counts vary less than multinomial ones: scaled, chi-square with 11 degrees.
    statistic = ((counts - expected) ** 2).sum() / expected / (1 - 5 / 12) * 11 / 12
    assert statistic < chi2.isf(1e-4, 11)


def test_members_are_measured_and_trained_on_the_held_out_are_not_trained_on() -> None:
    members, apart = (
        SampledRecords.draw(accounting_sample, PATIENTS, SOURCE).rows_of(PATIENTS)
        for accounting_sample in (MEMBERS, HELD_OUT)
    )
    assert len(members.rows) == len(apart.rows) == 5
    assert members.trained.tolist() == list(range(12))
    assert sorted([*apart.rows, *apart.trained]) == list(range(12))
    everybody = SampledRecords.draw(None, PATIENTS, SOURCE).rows_of(PATIENTS)
    assert everybody.rows.tolist() == everybody.trained.tolist() == list(range(12))


def test_places_outlive_who_leaves_and_ignore_who_joins() -> None:
    accounting_sample = SampledRecords.draw(HELD_OUT, PATIENTS, SOURCE)
    first = accounting_sample.rows_of(PATIENTS)
    gone = PATIENTS[int(first.rows[0])]
    later = accounting_sample.rows_of([*[p for p in PATIENTS if p != gone][::-1], "p99"])
    assert sorted(later.slots) == sorted(first.slots[1:])
    assert len(later.trained) == 12 - 5 + 1
    with pytest.raises(Refused, match="new study") as caught:
        SampledRecords.draw(None, PATIENTS, SOURCE).rows_of([*PATIENTS, "p99"])
    assert caught.value.code == "records-added"


def test_a_held_out_sample_leaves_somebody_to_train_on() -> None:
    with pytest.raises(ConfigurationError, match="do not take part"):
        SampledRecords.draw(HELD_OUT, PATIENTS[:5], SOURCE)
    assert len(SampledRecords.draw(HELD_OUT, PATIENTS[:6], SOURCE).rows_of(PATIENTS[:6]).trained) == 1
    assert SampledRecords.draw(MEMBERS, PATIENTS[:2], SOURCE).size == 5


def test_places_without_a_record_count_at_the_clip_norm() -> None:
    """Five small records in an accounting sample of 400: no bound below that of 395 at the clip norm."""
    path = BAYESIAN | {"adversary": "path", "filter_order": 2.0}
    filled = LogMomentBounds(study(AccountingSample(records=400, source="members"), bayesian=path), PATIENTS[:5])
    filled.measure(np.full(5, 0.01), rounding=0.0)
    whole = float(phi(2, 1.0, 0.5, 1.0))
    mean = math.log((395 * math.exp(whole) + 5 * math.exp(float(phi(2, 0.01, 0.5, 1.0)))) / 400)
    assert mean <= filled.tensors()["log-moments/filter"][0] <= whole * (1 + 1e-9)


def test_the_number_of_records_does_not_show() -> None:
    """The same noise, every record at the clip norm: five records and five hundred tell the same."""
    reported = []
    for count in (5, 500):
        log_moments = LogMomentBounds(
            study(AccountingSample(records=50, source="members"), **NOISED), [f"p{i}" for i in range(count)]
        )
        for round in (1, 2):
            log_moments.measure(np.full(len(log_moments.rows), 3.0), rounding=0.0)
            log_moments.publish(round, SeededSource(3, allow_insecure=True))
        reported.append(log_moments.tensors())
    for name in reported[0]:
        assert reported[0][name].tolist() == reported[1][name].tolist()


def test_noised_terms_move_at_checkpoints_alone() -> None:
    many = [f"p{i}" for i in range(3000)]
    path = BAYESIAN | {"adversary": "path", "orders": [2.0, 8.0]}
    chosen = study(
        AccountingSample(records=2000, source="members"), **NOISED, bayesian=path, max_steps=5, sampling_rate=1.0
    )
    once, release = 4 * 5 / 2, 4 * 5 / 8.0**2  # λ(λ+1)d²/2s² and λ(λ+1)·2/2z² at λ* = 4
    log_moments, source, reported = LogMomentBounds(chosen, many), SeededSource(5, allow_insecure=True), []
    for round in range(1, 6):
        log_moments.measure(np.full(2000, 0.1), rounding=0.0)
        log_moments.publish(round, source)
        reported.append(float(log_moments.tensors()["log-moments/filter"][0]))
        again = LogMomentBounds.restore(chosen, many, log_moments.to_bytes())
        assert again.tensors()["log-moments/filter"][0] == reported[-1]
    assert reported[0] == pytest.approx(once, rel=1e-6)
    # An estimate of 2,000 small records: far below two steps at the clip norm, and one histogram on top.
    assert reported[1] < 2 * once + release - 2
    assert reported[2] == pytest.approx(reported[1] + once, rel=1e-6)
    assert reported[3] <= reported[2] + once + release + 1e-6
    assert reported[4] == pytest.approx(reported[3] + once, rel=1e-6)


def test_lost_rounds_are_charged_with_their_histograms_and_a_lost_held_out_sample_ends_it() -> None:
    lost = LogMomentBounds(study(AccountingSample(records=50, source="members"), **NOISED), PATIENTS)
    lost.charge_lost_rounds(2)
    counted = LogMomentBounds(study(AccountingSample(records=50, source="members"), **NOISED), PATIENTS)
    for round in (1, 2):
        counted.measure(np.full(len(counted.rows), 3.0), rounding=0.0)
        counted.publish(round, SeededSource(1, allow_insecure=True))
    assert lost.tensors()["log-moments/filter"] == pytest.approx(counted.tensors()["log-moments/filter"], rel=1e-9)
    with pytest.raises(Refused, match="held out") as caught:
        LogMomentBounds(study(HELD_OUT), PATIENTS).charge_lost_rounds(1)
    assert caught.value.code == "held-out-lost"
    LogMomentBounds(study(HELD_OUT), PATIENTS).charge_lost_rounds(0)


@pytest.mark.parametrize(
    "accounting_sample", [AccountingSample(records=8, source="members"), AccountingSample(records=8, source="held-out")]
)
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_a_round_measures_the_sample_and_trains_on_the_rest(accounting_sample: AccountingSample, rate: float) -> None:
    """Against gradients of single records by autograd; almost no noise, so that the sum shows who was in it."""
    task = load("logistic-regression", TASK_PARAMETERS)
    data, weights = task.dataset(records(30)), weights_of(task.model())
    chosen = study(accounting_sample, sampling_rate=rate, noise_multiplier=1e-6, clip_norm=0.3, expected_batch_size=1.0)
    norms, vectors = [], []
    for x, y in zip(data.inputs, data.targets, strict=True):
        model = task.model()
        task.loss(model(x[None]), y[None]).sum().backward()
        flat = np.concatenate([p.grad.numpy().reshape(-1) for _, p in sorted(model.named_parameters())])
        norms.append(float(np.linalg.norm(flat)))
        vectors.append(flat * min(1.0, 0.3 / norms[-1]))
    log_moments = _Listening(chosen, data.patients)
    made = LocalTraining(task, data, chosen, SeededRandomness(4, allow_insecure=True)).contribution(
        weights, log_moments
    )
    assert log_moments.heard == pytest.approx(np.array(norms)[log_moments.rows], rel=1e-4)
    assert len(log_moments.rows) == 8
    sent = np.concatenate([made.update[name].reshape(-1) for name in sorted(made.update)])
    if rate == 1.0:
        assert sent == pytest.approx(np.sum([vectors[row] for row in log_moments.trained], axis=0), abs=1e-3)
    assert len(log_moments.trained) == (30 if accounting_sample.source == "members" else 22)


class _Listening(LogMomentBounds):
    """Keeps the norms it was given."""

    heard: np.ndarray

    def measure(self, norms, *, rounding, total_records=None):
        self.heard = norms
        assert np.all(accounted(norms, clip_norm=0.3, rounding=rounding) <= 0.3)
        super().measure(norms, rounding=rounding, total_records=total_records)


def test_what_is_held_out_never_reaches_the_update() -> None:
    """Held-out records turned upside down, the same coins: the same update to the last bit."""
    task = load("logistic-regression", TASK_PARAMETERS)
    chosen, table = study(HELD_OUT), records(30)
    data, sent = task.dataset(table), []
    accounting_sample = SampledRecords.draw(HELD_OUT, data.patients, SeededSource(2, allow_insecure=True))
    rows = accounting_sample.rows_of(data.patients).rows
    for sign in (1.0, -1.0):
        data.inputs[rows] *= sign
        log_moments = LogMomentBounds(chosen, data.patients, accounting_sample=accounting_sample)
        made = LocalTraining(task, data, chosen, SeededRandomness(6, allow_insecure=True))
        sent.append(made.contribution(weights_of(task.model()), log_moments).update)
    for name, array in sent[0].items():
        np.testing.assert_array_equal(array, sent[1][name])


def test_patients_own_sums_pay_for_histograms_that_left_before() -> None:
    """λ(λ+1)/2z² for each, beside the steps; closed forms at q = 1, rounded up."""
    limit = IndividualLimit(epsilon=50.0, delta=1e-5, order=3.0)
    sent = [Charge("instance", 4.0, 1.0, 2, histograms=3, histogram_noise=5.0)]
    own = IndividualBudget.open(limit, None, PATIENTS, entries=1, sent_since=lambda _: sent)
    assert own.before == pytest.approx(2 * 12 / (2 * 4.0**2) + 3 * 12 / (2 * 5.0**2), rel=1e-8)
