"""A hospital agrees to a rule once, and then answers the questions that signed answers lead to, and no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client_sdk.errors import PolicyRefused
from client_sdk.guard.approvals import Approvals
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.query_rules import require_schedule
from client_sdk.study.consents import YES, HospitalConsents
from client_sdk.study.permission import Permission
from client_sdk.study.synthesis import SynthesisRule
from study_protocol.study.queries import Query, QueryAsked, QueryDocument, SignedAnswer
from study_protocol.wire.signing import QUERY_ANSWER, sign_document
from synthesis.rule import next_question
from tests.factories.hospitals import plain_policy
from tests.factories.settings import statistics_settings
from tests.factories.signed_answers import KEY, PUBLIC, shown
from tests.factories.synthesis import SECTION, answered, section

STUDY = statistics_settings(synthesis=SECTION)


class Coordinator:
    """One that shows these queries."""

    def __init__(self, *queries: Query) -> None:
        self.shown, self.put = list(queries), list[Any]()

    def queries(self, study: str, state: str | None = None, after: int | None = None) -> Any:
        chosen = [query for query in self.shown if state in (None, query.state)]
        return SimpleNamespace(queries=chosen, next=None)

    def query(self, study: str, number: int) -> Query:
        return next(query for query in self.shown if query.number == number)

    def put_consent(self, study: str, number: int, client: str, consent: Any) -> None:
        self.put.append((number, consent))


def signed(document: QueryDocument, number: int, seed: int = 0, key: Ed25519PrivateKey = KEY) -> Query:
    """The answer of 5,000 patients to this question, as the coordinator shows it."""
    published = answered(document, 5000, seed).model_copy(update={"query": number})
    signature = sign_document(key, QUERY_ANSWER, published.model_dump(mode="json"))
    return shown(
        document,
        state="answered",
        round=number,
        number=number,
        answered=SignedAnswer(published=published, signature=signature),
    )


def chain() -> list[QueryDocument]:
    """The questions after the answers of `signed`."""
    found: list[QueryDocument] = []
    synthesis = section()
    while (document := next_question(synthesis, [answered(each, 5000) for each in found])) is not None:
        found.append(document)
    return found


def changed(document: QueryDocument, **entries: Any) -> QueryDocument:
    """The question with other entries. Other tables have no weights."""
    value = document.model_dump(mode="json")
    weights = {"weights": []} if "cliques" in entries else {}
    return QueryDocument.model_validate(value | {"question": value["question"] | weights | entries})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[HospitalLedger]:
    with HospitalLedger.open(tmp_path / "ledger.db") as opened:
        yield opened


def permission(other: Coordinator, directory: Path, ledger: HospitalLedger, **rules: Any) -> Permission:
    client: Any = other
    rule = SynthesisRule(client, "registry", PUBLIC, section())
    return Permission("registry", STUDY, plain_policy(statistics=rules), Approvals(directory, "registry"), ledger, rule)


def pay(ledger: HospitalLedger, asks: Permission, round: int, document: QueryDocument) -> None:
    approval = asks.under(QueryAsked(number=1, document=document))
    ledger.charge("registry", round, Charge.of_query(document.cost()), (), document.digest(), approval)


def test_each_question_of_the_rule_needs_no_person(tmp_path: Path, ledger: HospitalLedger) -> None:
    documents, other = chain(), Coordinator()
    for place, document in enumerate(documents, 1):
        other.shown.append(shown(document, number=place))
        asks = permission(other, tmp_path, ledger)
        speaker_client: Any = other
        able: Any = SimpleNamespace(settings=STUDY, data_version="1")
        membership: Any = SimpleNamespace(study="registry", client="mercy")
        HospitalConsents(speaker_client, membership, asks.policy, able, asks).speak()
        assert other.put[-1] == (place, YES)
        other.shown[-1] = signed(document, place)
    assert [number for number, _ in other.put] == [1, 2, 3]


@pytest.mark.parametrize(
    "lie",
    [
        # Other pairs, other groups, another weight: all in the form of the rule and at its cost.
        {"cliques": [[0, 1, 3]], "groups": [], "weights": []},
        {"groups": [[0, 0, 0, 0, 1, 1, 1, 1, 1], [], [], []]},
        {"weights": [1, 2, 1]},
        {"title": "another"},
    ],
    ids=str,
)
def test_a_question_that_the_answers_do_not_lead_to_is_refused(
    tmp_path: Path, ledger: HospitalLedger, lie: dict[str, Any]
) -> None:
    first, second, _ = chain()
    asks = permission(Coordinator(signed(first, 1)), tmp_path, ledger)
    asks.require_by_rule(QueryAsked(number=2, document=second))
    with pytest.raises(PolicyRefused, match="the signed answers lead to another one") as refused:
        asks.require_by_rule(QueryAsked(number=2, document=changed(second, **lie)))
    assert refused.value.code == "not-by-rule"


def test_a_later_question_before_its_time_is_refused(tmp_path: Path, ledger: HospitalLedger) -> None:
    first, second, third = chain()
    for document in (second, third):
        with pytest.raises(PolicyRefused, match="lead to another one"):
            permission(Coordinator(), tmp_path, ledger).require_by_rule(QueryAsked(number=2, document=document))
    with pytest.raises(PolicyRefused, match="lead to another one"):
        permission(Coordinator(signed(first, 1)), tmp_path, ledger).require_by_rule(
            QueryAsked(number=2, document=third)
        )
    complete = Coordinator(*(signed(document, number) for number, document in enumerate((first, second, third), 1)))
    with pytest.raises(PolicyRefused, match="lead to no further question"):
        permission(complete, tmp_path, ledger).require_by_rule(QueryAsked(number=4, document=changed(third, title="")))


def test_an_answer_that_the_coordinator_has_not_signed_is_refused(tmp_path: Path, ledger: HospitalLedger) -> None:
    first, second, _ = chain()
    foreign = signed(first, 1, key=Ed25519PrivateKey.from_private_bytes(bytes(32)))
    with pytest.raises(PolicyRefused, match="are not sound"):
        permission(Coordinator(foreign), tmp_path, ledger).require_by_rule(QueryAsked(number=2, document=second))


@pytest.mark.parametrize("lie", ["noise", "steps"])
def test_an_answer_that_states_less_noise_or_another_grid_is_refused(
    tmp_path: Path, ledger: HospitalLedger, lie: str
) -> None:
    first, second, _ = chain()
    published = answered(first, 5000).model_copy(update={"query": 1})
    if lie == "noise":
        noise = published.noise.model_copy(update={"present": published.noise.present * 0.99})
        published = published.model_copy(update={"noise": noise})
    else:
        arrays = tuple(array.model_copy(update={"steps": 1}) for array in published.answer.arrays)
        published = published.model_copy(update={"answer": published.answer.model_copy(update={"arrays": arrays})})
    signature = sign_document(KEY, QUERY_ANSWER, published.model_dump(mode="json"))
    answer = SignedAnswer(published=published, signature=signature)
    other = Coordinator(shown(first, state="answered", round=1, number=1, answered=answer))
    with pytest.raises(PolicyRefused, match=r"are not sound: .* states another grid or less noise"):
        permission(other, tmp_path, ledger).require_by_rule(QueryAsked(number=2, document=second))


def test_a_coordinator_that_signs_two_answers_gets_one_next_question(tmp_path: Path, ledger: HospitalLedger) -> None:
    """Both are signed, and both lead to a question by the rule. This hospital answers one in each place."""
    first, second, third = chain()
    asks = permission(Coordinator(signed(first, 1), signed(second, 2)), tmp_path, ledger)
    pay(ledger, asks, 3, changed(third, cliques=[[0, 2, 3]], weights=[]))
    with pytest.raises(PolicyRefused, match="has answered another question of synthesis in its place"):
        asks.require_by_rule(QueryAsked(number=3, document=third))
    # Killed after it has paid, it goes on with that round.
    asks.require_by_rule(QueryAsked(number=3, document=third), except_round=3)


def test_sums_that_came_to_nothing_are_bounded(tmp_path: Path, ledger: HospitalLedger) -> None:
    first = chain()[0]
    asks, asked = permission(Coordinator(), tmp_path, ledger), QueryAsked(number=1, document=first)
    for round in (1, 2):
        assert asks.of(asked) is True
        pay(ledger, asks, round, first)
    # Then a person decides, as after an approval.
    assert asks.of(asked) is None
    asks.approvals.decide(first.digest(), approved=True, words="")
    assert asks.of(asked) is True


def test_a_person_may_still_say_no(tmp_path: Path, ledger: HospitalLedger) -> None:
    first = chain()[0]
    asks = permission(Coordinator(), tmp_path, ledger)
    asks.approvals.decide(first.digest(), approved=False, words="")
    assert asks.of(QueryAsked(number=1, document=first)) is False


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"queries": "refuse"}, "no question is answered"),
        ({"denied_columns": ["pressure"]}, "denied_columns names pressure"),
        ({"least_noise_multiplier": 1.5}, "least_noise_multiplier = 1.5, and the question has 1.4"),
        ({"most_cells": 59}, "most_cells = 59, and the question has 368"),
    ],
    ids=str,
)
def test_a_hospital_whose_policy_forbids_the_rule_does_not_join(rules: dict[str, Any], words: str) -> None:
    with pytest.raises(PolicyRefused, match=words):
        require_schedule(plain_policy(statistics=rules), STUDY, "1")
    with pytest.raises(PolicyRefused, match="data version"):
        require_schedule(plain_policy(), STUDY, "2026-11")
    # No question of these columns that is known yet has so many, but one of pairs in full may.
    fine = [{"column": name, "edges": list(range(30))} for name in "ab"]
    synthesis = SECTION | {"columns": [*fine, SECTION["columns"][3]]}
    with pytest.raises(PolicyRefused, match="most_cells = 4095, and the question has 4096"):
        require_schedule(
            plain_policy(statistics={"most_cells": 4095}), statistics_settings(synthesis=synthesis, max_cells=9999), "1"
        )
    require_schedule(plain_policy(statistics={"queries": "ask"}), STUDY, "1")
