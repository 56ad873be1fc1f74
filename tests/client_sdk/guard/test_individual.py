"""Each patient's own sum: charged once, left out when the next step might pass the limit, told to nobody outside."""

import json
import logging
import math
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

from accounting.mechanisms.conversion import largest_moment
from accounting.units import Definition
from client_sdk.errors import ConfigurationError, LedgerDamaged, PolicyRefused
from client_sdk.guard.charges import Charge
from client_sdk.guard.individual import IndividualBudget, certificate
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy_limits import IndividualLimit
from client_sdk.guard.rules import require_allowed
from private_learning.gradients import PerRecordGradients
from private_learning.tasks import load
from private_learning.training import LocalTraining
from private_learning.training.gradients import PrivateGradients
from private_learning.training.weights import weights_of
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from tests.factories.hospitals import coordinator, hospital, plain_policy, records
from tests.factories.settings import TASK_PARAMETERS, settings

ORDER, DELTA = 3.0, 1e-5
TASK = load("logistic-regression", TASK_PARAMETERS)
DATA = TASK.dataset(records(20))
NORMS = PerRecordGradients(TASK.model(), TASK.loss).norms(DATA.inputs, DATA.targets).numpy()


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def phi(distance: float, *, std: float = 1.0, rate: float = 1.0) -> float:
    """Log-moment of one step at order 3, by the binomial sum to 40 digits (Abadi et al. 2016, section 3)."""
    with mpmath.workdps(40):
        n, q, d, s = int(ORDER) + 1, mpmath.mpf(rate), mpmath.mpf(distance), mpmath.mpf(std)
        terms = (
            mpmath.binomial(n, k) * q**k * (1 - q) ** (n - k) * mpmath.exp((k * k - k) * d * d / (2 * s * s))
            for k in range(n + 1)
        )
        return float(mpmath.log(mpmath.fsum(terms)))


def epsilon_for(moment: float) -> float:
    """The ε that leaves room for exactly this log-moment (Canonne, Kamath & Steinke 2020, Proposition 12)."""
    a = ORDER + 1
    return (moment - math.log(DELTA) - math.log(a)) / (a - 1) + math.log((a - 1) / a)


def limit(moment: float, **more: Any) -> IndividualLimit:
    return IndividualLimit(epsilon=epsilon_for(moment), delta=DELTA, order=ORDER, **more)


def budget(moment: float = 50.0, patients: Any = DATA.patients, **more: Any) -> IndividualBudget:
    return IndividualBudget.open(limit(moment, **more), None, patients, entries=0, sent_since=lambda _: [])


def spent(own: IndividualBudget) -> np.ndarray:
    return np.array(own.filter.state()["spent"])


def left_out(own: IndividualBudget, chosen: StudySettings) -> int:
    return len(NORMS) - len(own.admitted(np.arange(len(NORMS)), chosen.privacy))


def one_step(chosen: StudySettings, own: IndividualBudget, seed: int = 1) -> np.ndarray:
    local = LocalTraining(TASK, DATA, chosen, SeededRandomness(seed, allow_insecure=True))
    update = local.contribution(weights_of(TASK.model()), None, individual=own).update
    return np.concatenate([update["bias"].ravel(), update["weight"].ravel()]).astype(np.float64)


def test_the_sampler_s_own_error_comes_off_the_limit_s_delta() -> None:
    """At ε = 50 a thousand million releases may add 5e-10 to δ, and the patients' sums have to end earlier by that."""
    large = IndividualLimit(epsilon=50.0, delta=DELTA, order=ORDER)
    own = IndividualBudget.open(large, None, DATA.patients, entries=0, sent_since=lambda _: [])
    left = math.log1p(-1e9 * math.exp(50) * 1e-40 / DELTA)
    assert own.filter.spec.bound == pytest.approx(largest_moment(ORDER, 50.0, DELTA) + left, abs=1e-9)
    assert left < -1e-6
    assert certificate(own.to_bytes()).delta == DELTA


def test_without_sampling_everybody_is_charged_what_they_moved() -> None:
    own = budget()
    one_step(settings(sampling_rate=1.0), own)
    expected = [phi(min(norm, 1.0)) for norm in NORMS]
    np.testing.assert_allclose(spent(own), expected, rtol=2e-3)
    assert (spent(own) >= expected).all()
    one_step(settings(sampling_rate=1.0, clip_norm=0.1), own)
    # At the clip norm, one step of a study with σ times that norm costs the same whatever the norm is.
    np.testing.assert_allclose(spent(own), np.array(expected) + phi(1.0), rtol=2e-3)


def test_the_drawn_are_charged_at_their_norms_and_the_others_at_the_clip_norm() -> None:
    own = budget()
    one_step(settings(sampling_rate=0.5, clip_norm=2.0), own)
    worst = phi(1.0, rate=0.5)
    exact = np.array([phi(min(norm / 2, 1.0), rate=0.5) for norm in NORMS])
    drawn = spent(own) < 0.99 * worst
    assert 3 <= int(drawn.sum()) <= 17
    np.testing.assert_allclose(spent(own)[drawn], exact[drawn], rtol=2e-3)
    np.testing.assert_allclose(spent(own)[~drawn], worst, rtol=1e-6)
    every = budget(every_norm=True)
    one_step(settings(sampling_rate=0.5, clip_norm=2.0), every)
    np.testing.assert_allclose(spent(every), exact, rtol=2e-3)
    assert (spent(every) >= exact).all()


def test_a_study_with_terms_has_every_norm_already() -> None:
    from client_sdk.guard.log_moments import LogMomentBounds

    own, chosen = budget(), settings(bayesian=True, sampling_rate=0.5, clip_norm=2.0)
    local = LocalTraining(TASK, DATA, chosen, SeededRandomness(1, allow_insecure=True))
    local.contribution(weights_of(TASK.model()), LogMomentBounds(chosen, DATA.patients), individual=own)
    np.testing.assert_allclose(spent(own), [phi(min(n / 2, 1.0), rate=0.5) for n in NORMS], rtol=2e-3)


def test_who_might_pass_the_limit_at_the_next_step_contributes_nothing_more() -> None:
    """Room for one step at the clip norm and three quarters of another: long gradients take it up at once."""
    chosen = settings(sampling_rate=1.0, noise_multiplier=1.0, clip_norm=float(np.median(NORMS)))
    own = budget(1.75 * phi(1.0))
    one_step(chosen, own)
    first = spent(own)
    gone = first + phi(1.0) > 1.75 * phi(1.0)
    assert 5 <= int(gone.sum()) < len(NORMS)
    assert left_out(own, chosen) == int(gone.sum())
    one_step(chosen, own)
    np.testing.assert_array_equal(spent(own)[gone], first[gone])
    assert (spent(own)[~gone] > first[~gone]).all()
    assert (spent(own) <= 1.75 * phi(1.0)).all()


@pytest.mark.parametrize("rate", [0.5, 1.0])
@pytest.mark.parametrize("every_norm", [False, True])
def test_who_was_left_out_once_stays_out_of_cheaper_studies(rate: float, every_norm: bool) -> None:
    """Else a record that hidden coins kept out of a dear step could pay for a cheap one as if the dear had not been."""
    dear, cheap = settings(sampling_rate=rate), settings(sampling_rate=rate, noise_multiplier=10.0)
    own = budget(1.2 * phi(1.0, rate=rate), every_norm=every_norm)
    keep = np.arange(len(NORMS)) % 2 == 0
    state = own.filter.state()
    state["spent"] = np.where(keep, 0.0, 0.5 * phi(1.0, rate=rate)).tolist()
    own.filter = type(own.filter).restore(state)
    assert left_out(own, cheap) == 0
    one_step(dear, own)
    np.testing.assert_array_equal(np.array(own.filter.state()["excluded"])[~keep], True)
    assert left_out(own, cheap) >= int((~keep).sum())
    before = spent(own)
    one_step(cheap, own)
    np.testing.assert_array_equal(spent(own)[~keep], before[~keep])


def test_nobody_loses_more_than_the_bound_over_a_run_that_adapts() -> None:
    """Each record's true cost, by one backward per record at every step, over the steps it could be drawn in."""
    chosen, rounds = settings(sampling_rate=0.5, noise_multiplier=1.5, clip_norm=0.7), 40
    worst = phi(1.0, std=1.5, rate=0.5)
    own, model = budget(6.5 * worst), TASK.model()
    randomness = SeededRandomness(3, allow_insecure=True).in_round("client", 1)
    steps = PrivateGradients(PerRecordGradients(model, TASK.loss), DATA, chosen, randomness, individual=own)
    true, taken = np.zeros(len(DATA)), np.zeros(len(DATA))
    for step in range(1, rounds + 1):
        room = own.filter.has_room(noise_std=1.05, sampling_rate=0.5, max_distance=0.7)
        for i in np.flatnonzero(room):
            model.zero_grad()
            TASK.loss(model(DATA.inputs[i : i + 1]), DATA.targets[i : i + 1]).sum().backward()
            norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None))
            true[i] += phi(min(norm / 0.7, 1.0), std=1.5, rate=0.5)
        taken += room
        found = steps.at(step)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter -= 0.5 * found[name]
    assert (true <= 6.5 * worst).all()
    # They left, not all at once, and whoever was counted at the worst alone would have left after six steps.
    assert taken.max() < rounds
    assert taken.min() >= 6
    assert len(set(taken.tolist())) > 1
    assert (true <= spent(own) * (1 + 1e-9)).all()


def test_the_update_is_that_of_the_others() -> None:
    still = {"sampling_rate": 1.0, "noise_multiplier": 1e-7, "clip_norm": 0.3}
    own = budget(1.5 * phi(1.0))
    keep = np.arange(len(NORMS)) % 3 != 0
    state = own.filter.state()
    own.filter = type(own.filter).restore(state | {"spent": np.where(keep, 0.0, 1.4 * phi(1.0)).tolist()})
    # So little noise would cost more than everything: the sums are asked with the noise of an ordinary study.
    ordinary = settings(sampling_rate=1.0, clip_norm=0.3).privacy
    admitted = own.admitted(np.arange(len(NORMS)), ordinary)
    np.testing.assert_array_equal(admitted, np.flatnonzero(keep))
    own.admitted = lambda drawn, privacy: IndividualBudget.admitted(own, drawn, ordinary)  # type: ignore[method-assign]
    own.charge = lambda *given, **more: None  # type: ignore[method-assign]
    found = one_step(settings(**still), own)
    others = DATA.without([p for p, kept in zip(DATA.patients, keep, strict=True) if not kept])
    local = LocalTraining(TASK, others, settings(**still), SeededRandomness(1, allow_insecure=True))
    update = local.update(weights_of(TASK.model()), None)
    expected = np.concatenate([update["bias"].ravel(), update["weight"].ravel()])
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_when_all_are_left_out_noise_alone_is_sent() -> None:
    own = budget(0.5 * phi(1.0))
    update = one_step(settings(sampling_rate=1.0), own)
    assert left_out(own, settings(sampling_rate=1.0)) == len(NORMS)
    assert (spent(own) == 0).all()
    assert (np.abs(update) > 0).all()


def test_sums_survive_and_patients_come_and_go() -> None:
    own = budget()
    one_step(settings(sampling_rate=1.0), own)
    rest = [*DATA.patients[5:][::-1], "new"]
    chosen = settings(sampling_rate=1.0).privacy
    again = IndividualBudget.open(own.limit, own.to_bytes(entries=7), rest, entries=7, sent_since=lambda _: [])
    before = spent(again)
    np.testing.assert_array_equal(before[:20], spent(own))
    assert before[20] == 0.0
    again.charge(np.arange(16), np.full(16, 1.0), chosen, rounding=0.0)
    np.testing.assert_allclose(spent(again)[5:], before[5:] + phi(1.0), rtol=1e-8)
    # Who is not among today's records is charged nothing.
    np.testing.assert_array_equal(spent(again)[:5], before[:5])
    assert json.loads(again.to_bytes())["entries"] == 7


def test_what_left_uncounted_is_charged_to_everybody_at_the_clip_norm() -> None:
    past = [Charge("instance", 2.0, 0.5, 3), Charge("instance", 1.0, 1.0, 1)]
    cost = 3 * phi(1.0, std=2.0, rate=0.5) + phi(1.0)
    own = IndividualBudget.open(limit(50.0), None, ["a", "b"], entries=9, sent_since=lambda after: past[after:])
    np.testing.assert_allclose(spent(own), cost, rtol=1e-8)
    later = IndividualBudget.open(limit(50.0), own.to_bytes(), ["a", "c"], entries=9, sent_since=lambda _: [])
    # Nobody can tell whether a patient who appears only now was there before the sums were kept.
    np.testing.assert_allclose(spent(later), cost, rtol=1e-8)
    assert len(spent(later)) == 3
    with pytest.raises(ConfigurationError, match="without being counted"):
        IndividualBudget.open(limit(cost * 0.99), None, ["a"], entries=9, sent_since=lambda _: past)
    with pytest.raises(ConfigurationError, match="no patient's sum counts"):
        IndividualBudget.open(limit(50.0), None, ["a"], entries=1, sent_since=lambda _: [Charge("client", 1.0, 1.0, 1)])


def test_another_limit_or_a_damaged_file_is_refused() -> None:
    saved = budget().to_bytes()
    for other in (limit(51.0), IndividualLimit(epsilon=epsilon_for(50.0), delta=1e-6, order=ORDER)):
        with pytest.raises(ConfigurationError, match="another epsilon"):
            IndividualBudget.open(other, saved, ["a"], entries=0, sent_since=lambda _: [])
    short = json.dumps(json.loads(saved) | {"patients": ["a"]}).encode()
    for bad in (short, b"", b"[]", b"{}", b'{"patients": [], "before": 0, "entries": 0}', saved[:-9]):
        with pytest.raises(LedgerDamaged):
            IndividualBudget.open(limit(50.0), bad, ["a"], entries=0, sent_since=lambda _: [])
    with pytest.raises(LedgerDamaged):
        certificate(b"{}")


def test_the_certificate_tells_nothing_about_anybody() -> None:
    found = []
    for clip in (0.01, 5.0):
        own = budget()
        one_step(settings(sampling_rate=1.0, clip_norm=clip), own)
        found.append(certificate(own.to_bytes()))
    assert found[0] == found[1]
    assert (found[0].definition, found[0].epsilon, found[0].delta) == (Definition.INDIVIDUAL, epsilon_for(50.0), DELTA)


def test_a_hospital_keeps_the_sums_over_rounds_and_studies_and_sends_none_of_it(tmp_path: Path) -> None:
    rules = plain_policy(individual={"epsilon": epsilon_for(50.0), "delta": DELTA, "order": ORDER})
    chosen = settings(sampling_rate=1.0, clip_norm=1e-3)
    first = coordinator(chosen)
    hospital(first, tmp_path).join("sepsis", None, records(), policy=rules, dataset="icu")
    bodies = b"".join(body for round in first.updates.values() for body in round.values())
    assert b"individual" not in bodies
    assert b"spent" not in bodies
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as ledger:
        saved = ledger.individual()
        assert saved is not None
        # Three rounds, each once, whoever looks: the entry that committed the last one is counted.
        np.testing.assert_allclose(json.loads(saved)["filter"]["spent"], 3 * phi(1.0), rtol=1e-3)
        assert ledger.sent_since(json.loads(saved)["entries"]) == []
        assert [charge.steps for charge in ledger.sent_since(0)] == [1, 1, 1]
        assert b"p1" not in saved
    second = coordinator(settings(sampling_rate=1.0, clip_norm=1e-3, noise_multiplier=2.0), study="stroke")
    hospital(second, tmp_path, "mercy").join("stroke", None, records(), policy=rules, dataset="icu")
    # Other records have other sums.
    third = coordinator(chosen, study="burns")
    hospital(third, tmp_path, "mercy").join("burns", None, records(), policy=rules, dataset="ward")
    for dataset, cost in (("icu", 3 * phi(1.0) + 3 * phi(1.0, std=2.0)), ("ward", 3 * phi(1.0))):
        with HospitalLedger.open(ledger_path(tmp_path, dataset)) as ledger:
            saved = ledger.individual()
        assert saved is not None
        np.testing.assert_allclose(json.loads(saved)["filter"]["spent"], cost, rtol=1e-3)


def test_rounds_sent_without_the_limit_are_charged_when_it_begins(tmp_path: Path) -> None:
    chosen = settings(sampling_rate=1.0, clip_norm=1e-3, max_steps=4)
    other = coordinator(chosen)
    here = hospital(other, tmp_path)

    def meddle(request: Any) -> None:
        if "/updates/" in request.url.path and len(other.updates) == 3:
            raise KeyboardInterrupt

    other.meddle = meddle
    with pytest.raises(KeyboardInterrupt):
        here.join("sepsis", None, records(), policy=plain_policy(), dataset="icu")
    other.meddle = None
    rules = plain_policy(individual={"epsilon": epsilon_for(50.0), "delta": DELTA, "order": ORDER})
    here.join("sepsis", None, records(), policy=rules, dataset="icu")
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as ledger:
        saved = ledger.individual()
    assert saved is not None
    np.testing.assert_allclose(json.loads(saved)["filter"]["spent"], 4 * phi(1.0), rtol=1e-3)


def test_studies_without_noise_of_the_hospitals_own_are_refused() -> None:
    client = {"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}
    rules = plain_policy(unnoised_updates=True, individual={"epsilon": 3.0, "delta": 1e-5})
    with pytest.raises(PolicyRefused, match="individual"):
        require_allowed(rules, "sepsis", "icu", settings(scheme="client", limits=[client]), roster_pinned=False)


def test_where_nobody_is_set_aside_a_query_is_charged_to_nobody_and_whoever_comes_begins_anew() -> None:
    """To stop would tell the coordinator that there is nobody."""
    query = Charge("instance", 2.0, 1.0, 1, bears="evaluated", asks=True)
    own = budget(patients=())
    assert own.room_for(query).tolist() == []
    own.charge_query(query)
    own.entries = 1
    again = IndividualBudget.open(limit(50.0), own.to_bytes(), ("p1",), entries=1, sent_since=lambda _: [])
    assert spent(again).tolist() == [0.0]
    assert certificate(own.to_bytes()).steps == 1
