"""The certificate by hospital: bounds that hold for each hospital's own patients, with the noise of every count."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from accounting.budget.accounts.cumulative import CumulativeLimit
from study_protocol.documents import check
from study_protocol.documents.by_hospital import ALL_AT_ONE, DistanceBlocks, certified, fault_of_distances
from study_protocol.documents.certify import Facts, compute_account, issue_certificate
from study_protocol.documents.pdf_content import certificate_pdf
from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.distances import EDGES, Distances
from study_protocol.study.queries import PublishedAnswer, QueryNoise
from tests.factories.certificates import PUBLIC, WHEN, ledger, sealed, signed, text_of
from tests.factories.settings import settings

RUNNING: dict[str, Any] = {
    "scheme": "parallel",
    "bayesian": {"composition": "running", "estimator": "betting", "adversary": "path"},
    "noise_multiplier": 1.5,
    "sampling_rate": 1.0,
}


def account(**options: Any) -> CumulativeLimit:
    found = compute_account(ledger(**RUNNING | options)).by_loss
    assert found is not None
    return found


def issued(blocks: DistanceBlocks | None, **options: Any) -> dict[str, Any]:
    entries = ledger(**RUNNING | options)
    stated = signed(**RUNNING | options).certificate
    facts = Facts(stated.title, "running", None, WHEN, PUBLIC, stated.ledger.signature, stated.model, None, blocks)
    return issue_certificate(compute_account(entries), facts).model_dump(mode="json")


def counted(rng: np.random.Generator, shares: np.ndarray, noise: float) -> np.ndarray:
    counts = np.bincount(np.searchsorted(EDGES, shares), minlength=len(EDGES))
    return counts + np.rint(rng.normal(0, noise, len(EDGES)))


def test_the_bound_holds_for_the_patients_of_each_hospital() -> None:
    """Against the mean itself: log E e^X of losses that are known, at the order that keeps the limit."""
    limit, rng = account(), np.random.default_rng(3)
    most = limit.epsilon_of_shares([1.0], np.array([1000]), 1e-9, unmeasured=0)
    for shares in ([0.2] * 9 + [1.0], [0.005] * 10, [0.6] * 10):
        law = np.array(shares)
        # A mean of e^X lies at or above every percentile's share, so ε at one edge holds for constant losses.
        for _ in range(20):
            drawn = rng.choice(law, 20_000)
            blocks = DistanceBlocks(1, 2, 5.0, np.array([counted(rng, drawn, 5.0)]))
            found = certified(blocks, limit, None, charged=[1, 2], in_full=0)
            exact = _epsilon(limit, law)
            assert exact <= found.hospitals[0].epsilon <= most


def _epsilon(limit: CumulativeLimit, shares: np.ndarray) -> float:
    """ε of the law of these shares itself: so many patients that the estimate costs nothing."""
    edges, places = np.unique(shares, return_inverse=True)
    counts = np.bincount(places) * 10**9
    if edges[-1] < 1.0:
        edges, counts = np.append(edges, 1.0), np.append(counts, 0)
    return limit.epsilon_of_shares(edges.tolist(), counts, 1e-9, unmeasured=0) * (1 - 1e-4)


def test_few_patients_have_a_number_near_the_worst_case_and_the_words_say_so() -> None:
    rng, small = np.random.default_rng(1), np.full(40, 0.005)
    blocks = np.array([counted(rng, np.full(40_000, 0.005), 4.0), counted(rng, small, 4.0)])
    found = issued(DistanceBlocks(7, 2, 4.0, blocks))["distances"]
    pooled, (least, other) = found["pooled"]["epsilon"], [each["epsilon"] for each in found["hospitals"]]
    assert least > 1.1 * pooled
    assert other == pytest.approx(pooled, rel=0.1)
    assert sum(found["hospitals"][0]["counts"]) == pytest.approx(40, abs=50)
    assert "near the worst case for this reason alone" in found["words"][0]
    said = " ".join(found["words"])
    assert "At 0 of 2 hospitals the estimate differs by more than 10%" in said
    assert "At 2 of 2 hospitals the noise hides whether it does" in said
    assert ALL_AT_ONE in found["words"]


@pytest.mark.parametrize("noise", [0.5, 20.0])
def test_the_interval_of_an_estimate_holds_the_number_of_these_patients(noise: float) -> None:
    """Against ε of the losses themselves, over 100 draws of the noise. At 95 %, 88 or fewer come once in 200 runs."""
    limit, rng = account(), np.random.default_rng(5)
    shares = np.concatenate([rng.beta(0.4, 4.0, 3000), rng.beta(4.0, 2.0, 300)])
    exact = limit.estimate_of_shares(shares.tolist(), lambda weights: float(weights.mean()), unmeasured=0)
    within = 0
    for _ in range(100):
        block = counted(rng, shares, noise)
        found = certified(DistanceBlocks(1, 2, noise, block[None]), limit, None, charged=[1, 2], in_full=0).hospitals[0]
        assert found.estimate is not None
        assert found.estimate_low <= found.estimate <= found.estimate_high
        within += found.estimate_low <= exact <= found.estimate_high
    assert within > 88


def test_hospitals_that_differ_are_counted_where_the_intervals_separate_and_else_the_noise_is_named() -> None:
    limit = account()
    blocks = np.array([[9e5, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 900.0]])
    exact, noised = (
        " ".join(certified(DistanceBlocks(1, 2, noise, blocks), limit, None, charged=[1, 2], in_full=0).words)
        for noise in (1.0, 2e4)
    )
    assert "At 2 of 2 hospitals the estimate differs" in exact
    assert "noise hides" not in exact
    assert "At 0 of 2 hospitals the estimate differs" in noised
    assert "At 2 of 2 hospitals the noise hides" in noised


def test_more_noise_and_rounds_that_were_not_measured_never_lower_a_number() -> None:
    limit = account()
    block = np.array([[9000.0, 800, 100, 50, 20, 10, 5, 15]])
    epsilon = [
        certified(DistanceBlocks(1, last, noise, block), limit, None, charged=[1, 2], in_full=0).hospitals[0].epsilon
        for noise, last in ((1.0, 2), (20.0, 2), (20.0, 1))
    ]
    assert epsilon == sorted(epsilon)
    in_full = certified(DistanceBlocks(1, 2, 20.0, block), limit, None, charged=[1, 2], in_full=2).hospitals[0].epsilon
    assert in_full >= epsilon[-1]


def test_a_cancelled_round_that_hospitals_measured_hides_no_loss() -> None:
    """Everybody lost the most in both rounds that count, and nothing in one that was cancelled: two thirds of three."""
    limit, rng = account(), np.random.default_rng(2)
    blocks = DistanceBlocks(1, 4, 5.0, np.array([counted(rng, np.full(20_000, 2 / 3), 5.0)]))
    exact = _epsilon(limit, np.ones(20_000))
    blind, sound = (
        certified(blocks, limit, None, charged=[1, 3], in_full=0, cancelled=each).hospitals[0] for each in (0, 1)
    )
    assert blind.epsilon < exact <= sound.epsilon
    assert blind.estimate_high < exact <= sound.estimate_high


def test_the_numbers_follow_from_the_ledger_and_the_counts() -> None:
    blocks = DistanceBlocks(7, 2, 3.0, np.array([[900.0, 80, 10, 5, 2, 1, 0, 2], [40.0, 3, 0, 0, 1, 0, 0, 6]]))
    entries, value = ledger(**RUNNING), issued(blocks)
    assert {each.result for each in check.check_ledger(sealed(value).certificate, entries)} == {"good"}
    value["distances"]["hospitals"][0]["epsilon"] *= 0.9
    found = check.check_ledger(sealed(value).certificate, entries)
    assert any(each.result == "bad" and "distances" in each.words for each in found)
    assert "distances" not in issued(None), "certificates of other studies stay as they were"


def test_the_pdf_shows_the_hospitals_without_their_names() -> None:
    blocks = DistanceBlocks(7, 2, 3.0, np.array([[900.0, 80, 10, 5, 2, 1, 0, 2], [40.0, 3, 0, 0, 1, 0, 0, 6]]))
    text = text_of(certificate_pdf(sealed(issued(blocks))))
    assert "For whom the Bayesian number does not speak" in text
    assert "All exceptional patients may be at one hospital" in text


def answered(suppress_below: int) -> PublishedAnswer:
    asked = Distances(kind="distances", noise_multiplier=2.0, by="hospital", hospitals=("city", "port", "rural"))
    answer = asked.answer(NoisedSum(np.arange(24.0), 2.0, 1, frozenset({"city", "rural"}))).suppressed(suppress_below)
    return PublishedAnswer(
        study="s",
        query=1,
        sha256="a" * 64,
        round=2,
        hospitals=2,
        noise=QueryNoise(guaranteed=2.0, present=2.5, spacing=1.0),
        answer=answer,
        warning="w",
        ledger_entries=3,
        ledger_sha256="b" * 64,
    )


def test_blocks_are_read_off_a_signed_answer() -> None:
    blocks = DistanceBlocks.of(answered(0))
    assert blocks is not None
    assert blocks.blocks.tolist() == [list(range(8)), list(range(16, 24))]
    assert blocks.noise == 2.5


@pytest.mark.parametrize("suppress_below", [3, 10])
def test_no_number_is_made_of_an_answer_that_lacks_counts(suppress_below: int) -> None:
    """Patients who are not shown may have the largest losses. Of 10 a whole hospital is gone."""
    assert DistanceBlocks.of(answered(suppress_below)) is None
    hiding = {"statistics": {"allowance": 0.1, "max_queries": 2, "max_cells": 100, "suppress_below": suppress_below}}
    assert "suppress_below = 0" in str(fault_of_distances(settings(**RUNNING, **hiding)))


def test_a_study_that_keeps_no_sum_of_every_patient_is_told() -> None:
    assert fault_of_distances(settings(**RUNNING)) is None
    assert "no Bayesian limit" in str(fault_of_distances(settings(scheme="parallel")))
    assert "running" in str(fault_of_distances(settings(scheme="parallel", bayesian={"composition": "holder"})))
    assert math.isfinite(account().failure)
    with pytest.raises(ValidationError):
        Distances(kind="distances", noise_multiplier=0.0)
