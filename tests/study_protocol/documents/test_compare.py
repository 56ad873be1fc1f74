"""Statements that agree but for the last bits of their numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from study_protocol.documents.compare import difference, in_form_of, tolerance_of

LIMIT: dict[str, Any] = {"spent": 1.5, "reports": [{"epsilon": 2.0}], "certificate": {"order": 4.0, "steps": 2}}


def test_equal_statements_have_no_difference_and_a_number_may_lack_its_last_bits() -> None:
    assert difference(LIMIT, LIMIT, "limit", strict=True) is None
    assert difference(LIMIT, LIMIT | {"spent": math.nextafter(1.5, 2)}, "limit", strict=True) is None
    assert difference(LIMIT, LIMIT | {"spent": 1.5 * (1 + 1e-8)}, "limit") == "limit.spent"


@pytest.mark.parametrize(
    ("other", "name"),
    [
        (LIMIT | {"reports": [{"epsilon": 2.1}]}, "limit.reports[0].epsilon"),
        (LIMIT | {"reports": []}, "limit.reports has 1 parts, not 0"),
        (LIMIT | {"more": None}, "limit.more"),
        ({"spent": 1.5, "reports": LIMIT["reports"]}, "limit.certificate"),
        (LIMIT | {"certificate": {"order": 4.0, "steps": 2.5}}, "limit.certificate.steps"),
        (LIMIT | {"spent": None}, "limit.spent"),
        (LIMIT | {"spent": "1.5"}, "limit.spent"),
        (LIMIT | {"spent": True}, "limit.spent"),
        (LIMIT | {"spent": 10**400}, "limit.spent"),
    ],
    ids=["inner", "shorter", "more", "lacks", "count", "none", "text", "boolean", "beyond floats"],
)
def test_the_first_part_that_differs_is_named(other: dict[str, Any], name: str) -> None:
    assert difference(LIMIT, other, "limit") == name


def test_one_is_not_true() -> None:
    assert difference(1, True, "x") == difference(False, 0, "x") == "x"
    assert difference(True, True, "x") is None


def test_estimates_and_differences_of_near_numbers_may_differ_by_what_last_bits_decide() -> None:
    assert difference({"rounds_left_estimate": 7}, {"rounds_left_estimate": 8}, "limit") is None
    assert difference({"rounds_left_estimate": 7}, {"rounds_left_estimate": 9}, "limit") is not None
    assert difference({"rounds_left_estimate": 7}, {"rounds_left_estimate": 8}, "limit", strict=True) is not None
    assert difference({"remaining": 1e-10}, {"remaining": 0.0}, "limit", strict=True) is None
    assert difference({"spent": 1e-10}, {"spent": 0.0}, "limit") == "limit.spent"


def test_of_orders_that_give_the_same_each_is_right_unless_it_is_none_of_them() -> None:
    stated, recomputed = {"order": 4.0, "orders": [4.0, 8.0]}, {"order": 8.0, "orders": [4.0, 8.0]}
    assert difference(stated, recomputed, "certificate") is None
    assert difference(stated, recomputed, "certificate", strict=True) == "certificate.order"
    assert difference(stated | {"order": 99.0}, recomputed, "certificate") == "certificate.order"


def test_a_limit_takes_the_form_of_a_version_that_did_not_say_where_the_guess_is_from() -> None:
    """Its chance was (e^ε + δ) / (1 + e^ε), by Kairouz, Oh and Viswanath 2015."""
    epsilon, delta = 1.25, 1e-5
    now = {
        "spent": epsilon,
        "delta": delta,
        "attack_success": 0.6,
        "certificate": {"order": 4.0, "guess_from": "loss-distribution"},
        "reports": [{"name": "tighter", "certificate": {"order": 8.0, "guess_from": "epsilon"}}],
    }
    earlier = in_form_of({"certificate": {"order": 4.0}}, now)
    assert earlier["attack_success"] == pytest.approx((math.exp(epsilon) + delta) / (1 + math.exp(epsilon)))
    assert earlier["certificate"] == {"order": 4.0}
    assert earlier["reports"] == [{"name": "tighter", "certificate": {"order": 8.0}}]
    assert in_form_of({"certificate": {"order": 4.0, "guess_from": "epsilon"}}, now) is now
    assert in_form_of({}, now) is now


def test_counts_are_exact_whatever_the_tolerance() -> None:
    assert difference({"steps": 10**7}, {"steps": 10**7 + 1}, "limit", tolerance=2e-6) == "limit.steps"
    assert difference({"epsilon": 1.0}, {"epsilon": 1.0 + 1e-6}, "limit", tolerance=2e-6) is None
    assert difference({"epsilon": 1.0}, {"epsilon": 1.0 + 1e-6}, "limit") == "limit.epsilon"


def test_the_tolerance_follows_from_the_ledger_alone() -> None:
    assert tolerance_of([{"progress": {"steps": None}}]) > tolerance_of([{}])
    assert tolerance_of([{}, {"progress": None}]) == 1e-9
