"""The policy's rules about questions, over their text alone."""

from __future__ import annotations

from typing import Any

import pytest

from client_sdk.errors import PolicyRefused
from client_sdk.guard.policy import QueryRules, SitePolicy
from client_sdk.guard.query_rules import column_rules, query_rules, require_answerable, require_schedule
from study_protocol.study.queries import QueryDocument
from tests.factories.hospitals import plain_policy
from tests.factories.regressions import later_steps, regression
from tests.factories.settings import settings

TABLE = {
    "kind": "table",
    "noise_multiplier": 2.0,
    "variables": [{"column": "Sex", "categories": ["f", "m"]}, {"column": "age", "edges": [50]}],
}


def document(version: str = "1", **entries: Any) -> QueryDocument:
    return QueryDocument.model_validate({"question": TABLE | entries, "data_version": version})


@pytest.mark.parametrize(
    ("rules", "entries", "code", "words"),
    [
        ({"queries": "refuse"}, {}, "policy-queries", 'queries = "refuse": no question is answered'),
        ({"denied_columns": ["SEX"]}, {}, "policy-columns", "denied_columns names Sex"),
        ({"allowed_columns": ["sex"]}, {}, "policy-columns", "allowed_columns does not name age"),
        (
            {"denied_columns": ["ward"]},
            {"where": [{"column": "Ward", "categories": ["1"]}]},
            "policy-columns",
            "denied_columns names Ward",
        ),
        ({"least_noise_multiplier": 2.5}, {}, "policy-noise", "least_noise_multiplier = 2.5, and the question has 2"),
        # 4 labels of sex times 3 of age.
        ({"most_cells": 11}, {}, "policy-cells", "most_cells = 11, and the question has 12"),
    ],
    ids=["refuse", "denied", "not allowed", "condition", "noise", "cells"],
)
def test_the_entry_that_says_no_is_named(rules: dict[str, Any], entries: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(PolicyRefused, match=r"the site policy \(policy.toml\) says no") as refused:
        require_answerable(plain_policy(statistics=rules), document(**entries), "1")
    assert refused.value.code == code
    assert words in refused.value.detail


def test_at_the_edge_of_every_rule_a_question_is_answered() -> None:
    rules = {
        "queries": "ask",
        "allowed_columns": ["sex", "AGE"],
        "least_noise_multiplier": 2.0,
        "most_cells": 12,
    }
    require_answerable(plain_policy(statistics=rules), document(), "1")
    assert all(rule.is_met for rule in query_rules(plain_policy(statistics=rules), document(), "1"))


def test_a_question_about_other_records_is_refused_with_their_version() -> None:
    with pytest.raises(PolicyRefused, match='about data version "1", and these records are "2026-03"') as refused:
        require_answerable(plain_policy(), document(), "2026-03")
    assert refused.value.code == "policy-data-version"


def test_a_limit_of_whole_hospitals_counts_no_question() -> None:
    policy = plain_policy(limits={"client": {"epsilon": 1.0, "delta": 1e-5}})
    with pytest.raises(PolicyRefused, match=r"\[limits.client\] is set") as refused:
        require_answerable(policy, document(), "1")
    assert refused.value.code == "policy-limits"


def test_a_hospital_may_refuse_to_have_numbers_of_its_own() -> None:
    """And answers the same question about all hospitals together."""
    policy = plain_policy(statistics={"queries": "allow", "by_hospital": "refuse"})
    with pytest.raises(PolicyRefused, match=r'by_hospital = "refuse": no question by hospital is answered') as refused:
        require_answerable(policy, document(by="hospital"), "1")
    assert refused.value.code == "policy-by-hospital"
    require_answerable(policy, document(), "1")
    for rule in ("ask", "allow"):
        require_answerable(plain_policy(statistics={"by_hospital": rule}), document(by="hospital"), "1")


def test_a_person_is_asked_unless_both_entries_allow_it() -> None:
    def allows(queries: str, by_hospital: str) -> bool:
        return QueryRules.model_validate({"queries": queries, "by_hospital": by_hospital}).allows(by_hospital=True)

    assert allows("allow", "allow")
    assert not any(allows(*rules) for rules in (("allow", "ask"), ("ask", "allow"), ("refuse", "allow")))
    assert QueryRules.model_validate({"queries": "allow"}).allows(by_hospital=False)


def test_cells_are_counted_over_all_hospitals() -> None:
    asked = document(by="hospital", hospitals=["east", "west"])
    require_answerable(plain_policy(statistics={"most_cells": 24}), asked, "1")
    with pytest.raises(PolicyRefused, match="most_cells = 23, and the question has 24"):
        require_answerable(plain_policy(statistics={"most_cells": 23}), asked, "1")


def test_the_noise_of_every_step_is_held_against_the_rule_before_the_first() -> None:
    first, *_, last = later_steps(regression())
    least, cells = last.question.noise_multiplier, max(first.question.cells, last.question.cells)
    assert least < first.question.noise_multiplier
    rules = {"least_noise_multiplier": least, "most_cells": cells}
    for step in (first, last):
        require_answerable(plain_policy(statistics=rules), step, "1")
        with pytest.raises(PolicyRefused, match=r"in one of its 3 steps: ask with more noise"):
            require_answerable(plain_policy(statistics=rules | {"least_noise_multiplier": least * 1.001}), step, "1")


def test_no_rule_at_all_reads_any_column() -> None:
    assert all(rule.is_met for rule in column_rules(QueryRules(), ["age", "postcode"]))
    denied, allowed = column_rules(QueryRules(allowed_columns=frozenset()), ["age"])
    assert (denied.is_met, allowed.is_met) == (True, False)


def test_scheduled_questions_are_held_against_the_same_rules() -> None:
    scheduled = settings(
        statistics={"max_queries": 9, "max_cells": 100},
        evaluation={"share": 0.4, "every": 2, "question": {"prediction": "binary", "noise_multiplier": 2.0}},
    )
    require_schedule(plain_policy(), scheduled, "1")
    with pytest.raises(PolicyRefused, match="least_noise_multiplier = 3"):
        require_schedule(plain_policy(statistics={"least_noise_multiplier": 3.0}), scheduled, "1")
    # A study without a schedule asks nothing by itself.
    require_schedule(plain_policy(statistics={"queries": "refuse"}), settings(), "1")


def test_a_refusal_names_no_file_that_is_not_there() -> None:
    """Without an entry the strict policy holds."""
    with pytest.raises(PolicyRefused) as refused:
        require_answerable(SitePolicy(), document(noise_multiplier=0.01), "1")
    assert refused.value.detail.startswith("the strict site policy, which holds without a policy.toml")
