"""Studies that measure accounting samples of records, with the hospitals' own log-moments: noised, and held out."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest

from accounting.budget.budget import replay
from accounting.budget.ledger import Entry
from client_sdk.guard.log_moments import LogMomentBounds
from server.services import views
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.secure_sum import lists
from server.services.studies import lifecycle
from study_protocol.randomness.source import SeededSource
from study_protocol.study.settings import StudySettings
from tests.factories.hospital_double import MODEL, update
from tests.factories.masked_studies import STEPS, MaskedHospital
from tests.factories.settings import limit, settings
from tests.factories.studies import open_study, work

PATH = {"adversary": "path"}
STD, EVERY, ROUNDS, CLIENTS = 10.0, 2, 4, 4
NOISED = {"disclosure": "noised", "histogram_noise": {"std": STD, "every": EVERY}}
ACCOUNTING_SAMPLE = {
    "accounting_sample": {"records": 600, "source": "members"},
    "max_steps": ROUNDS,
    "sampling_rate": 1.0,
    "classical_order": 8.0,
    "limits": [limit("instance"), limit("instance", "bayesian", estimator_failure_probability=1e-6)],
}
HELD_OUT = ACCOUNTING_SAMPLE | {"accounting_sample": {"records": 600, "source": "held-out"}}


def parallel(**privacy: Any) -> StudySettings:
    return settings(**({"bayesian": PATH, "noise_multiplier": 4.0} | privacy))


STUDIES = {
    "parallel": parallel(**ACCOUNTING_SAMPLE, **NOISED),
    "sequential": settings("sequential", masked=True, bayesian=PATH, **ACCOUNTING_SAMPLE, **NOISED),
}


class Side:
    """A hospital's own log-moments over records whose norms are small and its own."""

    def __init__(self, chosen: StudySettings, number: int) -> None:
        self._random, self._source = np.random.default_rng(number), SeededSource(number, allow_insecure=True)
        self.log_moments = LogMomentBounds(chosen, [f"p{number}-{i}" for i in range(900 + number)], self._source)

    def round(self, number: int) -> tuple[float, ...]:
        self.log_moments.measure(self._random.uniform(0.02, 0.2, len(self.log_moments.rows)), rounding=0.0)
        self.log_moments.publish(number, self._source)
        reported = self.log_moments.tensors()
        return (float(reported["log-moments/filter"][0]), *reported["log-moments/moments"].tolist())


def run(coordinator: Coordinator, chosen: StudySettings) -> list[tuple[float, ...]]:
    """A whole study; the elementwise largest of what the hospitals told in each round."""
    hospitals = open_study(coordinator, clients=CLIENTS, settings=chosen)
    sides = [Side(chosen, i) for i in range(CLIENTS)]
    largest = []
    for number in range(1, ROUNDS + 1):
        work(coordinator)
        reported = [side.round(number) for side in sides]
        largest.append(tuple(max(column) for column in zip(*reported, strict=True)))
        if chosen.privacy.masking is None:
            for hospital, log_moments in zip(hospitals, reported, strict=True):
                hospital.send(number, update(0.1, log_moments=log_moments))
            continue
        moved = {name: np.full_like(array, 0.1) for name, array in MODEL.items()}
        turns = [
            MaskedHospital(hospital, moved, reported=log_moments).session(coordinator, chosen, number)
            for hospital, log_moments in zip(hospitals, reported, strict=True)
        ]
        for step in STEPS:
            if lists.read_session(coordinator, "sepsis", number)[1].phase == step:
                for turn in turns:
                    turn.take(step)
                work(coordinator)
    work(coordinator)
    assert lifecycle.show(coordinator, "sepsis").stop_reason == "max-steps-reached"
    return largest


def epsilon(moment: float, order: int, delta: float) -> float:
    with mp.workdps(30):
        constant = order * mp.log(mp.mpf(order) / (order + 1)) - mp.log(order + 1)
        return float((mp.mpf(moment) + constant - mp.log(mp.mpf(delta))) / order)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", sorted(STUDIES))
def test_noised_histograms_are_charged_and_lower_the_bayesian_number(coordinator: Coordinator, scheme: str) -> None:
    chosen = STUDIES[scheme]
    reported = run(coordinator, chosen)
    std = 4.0 * (math.sqrt(3.0) if scheme == "sequential" else 1.0)
    shown = {limit.definition: limit for limit in views.read_budget(coordinator, "sepsis").limits if limit.epsilon}
    # Four steps at q = 1 and two histograms in which a record moves one count: λ(λ+1)d²/2s² and λ(λ+1)·2/2z².
    classical = ROUNDS * 8 * 9 / (2 * std**2) + ROUNDS // EVERY * 8 * 9 / STD**2
    assert shown["classical"].spent == pytest.approx(epsilon(classical, 8, 1e-5), rel=1e-6)
    entries = [Entry.from_dict(entry.model_dump()) for entry in ledger_page(coordinator, "sepsis").entries]
    replayed = replay(entries)
    assert replayed.statements() == [
        limit.model_dump(exclude_unset=True) for limit in views.read_budget(coordinator, "sepsis").limits
    ]
    # What is enforced, before the classical number caps what is shown.
    enforced = next(
        account.epsilon() for account in replayed.accounts if account.limit.estimator_failure_probability is not None
    )
    assert enforced < epsilon(ROUNDS * 4 * 5 / (2 * std**2) + ROUNDS // EVERY * 4 * 5 / STD**2, 4, 9e-6)
    # The thresholds of the masked maximum lie 1.8 % apart.
    step = 1.019 if scheme == "sequential" else 1.0
    assert epsilon(reported[-1][0], 4, 9e-6) <= enforced * (1 + 1e-9)
    assert enforced <= epsilon(reported[-1][0] * step, 4, 9e-6) * (1 + 1e-9)
    for one in shown.values():
        assert one.certificate["observer"] == "coordinator"
        assert "cancel" not in one.certificate["assumption"]


@pytest.mark.slow
@pytest.mark.parametrize("source", ["held-out", "members"])
@pytest.mark.parametrize("disclosure", [{}, NOISED])
def test_bounds_that_are_shown_between_rounds_certify_nothing(
    coordinator: Coordinator, source: str, disclosure: dict[str, Any]
) -> None:
    sample = HELD_OUT if source == "held-out" else ACCOUNTING_SAMPLE
    run(coordinator, parallel(bayesian={"adversary": "adaptive"}, **sample, **disclosure))
    limit = next(one for one in views.read_budget(coordinator, "sepsis").limits if one.definition == "bayesian")
    said = limit.certificate
    assert said["sample"] == source
    # A study under way shows its bounds after every round, so that the next round may depend on the sample.
    assert said["definition"] == "bayesian"
    assert ("never trained on" in said["assumption"]) == (source == "held-out")
    assert said["adversary"] == "adaptive"


@pytest.mark.quick("sqlite")
def test_a_joint_study_publishes_noised_histograms_of_its_hospitals(coordinator: Coordinator) -> None:
    limits = [
        {"level": "instance", "definition": "classical", "epsilon": 60.0, "delta": 1e-5},
        {"level": "client", "definition": "classical", "epsilon": 60.0, "delta": 1e-5},
        {
            "level": "client",
            "definition": "bayesian",
            "epsilon": 60.0,
            "delta": 1e-5,
            "estimator_failure_probability": 1e-6,
        },
    ]
    only_clients = {"limits": limits, "client_clip_norm": 2.0, "max_steps": 2, "sampling_rate": 1.0}
    only_clients["classical_order"] = 8.0
    chosen = settings("joint", masked=True, bayesian=True, **only_clients, **NOISED)
    hospitals = open_study(coordinator, clients=CLIENTS, settings=chosen)
    moved = {name: np.full_like(array, 0.1) for name, array in MODEL.items()}
    for number in (1, 2):
        work(coordinator)
        turns = [MaskedHospital(one, moved, distance=0.1).session(coordinator, chosen, number) for one in hospitals]
        for step in STEPS:
            for turn in turns:
                turn.take(step)
            work(coordinator)
    work(coordinator)
    shown = {(x.level, x.definition): x for x in views.read_budget(coordinator, "sepsis").limits}
    # Three honest shares of noise 4; a hospital moves the sum by 2, a record by 1, and either of them one count.
    for level, reach in (("client", 2.0), ("instance", 1.0)):
        moment = 2 * 8 * 9 * reach**2 / (2 * 3 * 4.0**2) + 8 * 9 / STD**2
        assert shown[level, "classical"].spent == pytest.approx(epsilon(moment, 8, 1e-5), rel=1e-6)
    reported = [entry.body["report"] for entry in ledger_page(coordinator, "sepsis").entries if entry.kind == "settled"]
    assert reported[0] is None
    assert reported[1]["records"] is None
    assert reported[1]["clients"]["sample_size"] == CLIENTS
    assert reported[1]["clients"]["count_noise"] == pytest.approx(STD * math.sqrt(CLIENTS / 3))
    assert shown["client", "bayesian"].certificate["relation"] == "zero-out"
