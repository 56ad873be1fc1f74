"""Rows of queries and consents that somebody changed without the coordinator's key: nothing false is answered."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from sqlalchemy import text

from server.db.row_checks import RowBroken
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.queries import ask
from server.services.queries.show import list_queries, show_query
from study_protocol.study.queries import Consent, Query
from study_protocol.wire.signing import SigningError, decode_public_key
from tests.factories.asked_studies import STUDY, consented, document, kinds, open_asked, send, shown
from tests.factories.forging import forge
from tests.factories.studies import FakeClock, work


def stop_reason(coordinator: Coordinator) -> str:
    """Of a study that is finished; asked as anybody would ask."""
    with pytest.raises(Rejected) as refused:
        views.read_budget(coordinator, STUDY)
    return str(refused.value.extra["stop_reason"])


def other_question(coordinator: Coordinator, *, digest: bool) -> None:
    other = document(noise_multiplier=50.0)
    forge(coordinator, "UPDATE queries SET document = :to", to=json.dumps(other.model_dump(mode="json")))
    if digest:
        forge(coordinator, "UPDATE queries SET sha256 = :to", to=other.digest())


def lower_noise(query: Query) -> dict[str, object]:
    found = query.model_dump(mode="json")["answered"]
    found["published"]["noise"]["present"] = 0.1
    return found


def other_number(query: Query) -> dict[str, object]:
    found = query.model_dump(mode="json")["answered"]
    found["published"]["answer"]["tables"][0]["rows"][0][0] = 77.0
    return found


@pytest.mark.quick("sqlite-False")
@pytest.mark.parametrize("digest", [False, True])
def test_a_question_exchanged_under_way_is_never_answered(coordinator: Coordinator, digest: bool) -> None:
    """The numbers were summed for one question; they are not published as the answer to another."""
    hospitals = open_asked(coordinator)
    query = consented(coordinator, hospitals, document())
    for hospital in hospitals:
        send(hospital, query)
    other_question(coordinator, digest=digest)
    work(coordinator)
    assert stop_reason(coordinator) == "database-differs"
    # What was seen is charged or reserved, and nothing is published.
    assert kinds(coordinator) in (["asked"], ["asked", "settled"])
    answers = coordinator.database.read("look", lambda tx: tx.session.execute(text("SELECT answer FROM queries")).all())
    assert answers == [(None,)]


@pytest.mark.quick("sqlite-False", "sqlite-True")
@pytest.mark.parametrize("digest", [False, True])
def test_a_question_exchanged_before_its_round(coordinator: Coordinator, digest: bool) -> None:
    """With its digest it is another question, which hospitals check anew; without it nobody is asked."""
    hospitals = open_asked(coordinator)
    number = ask.ask(coordinator, STUDY, document()).body.number
    other_question(coordinator, digest=digest)
    if digest:
        assert shown(coordinator).document == document(noise_multiplier=50.0)
        return
    with pytest.raises(RowBroken):
        shown(coordinator, number)
    work(coordinator)
    assert hospitals[0].assignment() is None


@pytest.mark.quick("sqlite-lower_noise", "sqlite-other_number")
@pytest.mark.parametrize("changed", [lower_noise, other_number])
def test_an_altered_answer_is_not_shown_and_not_believed(
    coordinator: Coordinator, changed: Callable[[Query], dict[str, object]]
) -> None:
    query = _answered(coordinator)
    key = decode_public_key(coordinator.signer.public_key)
    query.require_believable(key)
    forge(coordinator, "UPDATE queries SET answer = :to", to=json.dumps(changed(query)))
    with pytest.raises(RowBroken):
        shown(coordinator)
    with pytest.raises(RowBroken):
        ask.ask(coordinator, STUDY, document())
    # On the reader's side, whoever passed it on.
    altered = Query.model_validate(query.model_dump(mode="json") | {"answered": changed(query)})
    with pytest.raises(SigningError):
        altered.require_believable(key)


@pytest.mark.quick("sqlite")
def test_an_answer_to_another_question_is_not_believed(coordinator: Coordinator) -> None:
    """Two honest answers, exchanged."""
    first = _answered(coordinator)
    values = first.model_dump(mode="json")
    key, other = decode_public_key(coordinator.signer.public_key), document(noise_multiplier=9.0)
    for change in ({"number": 2}, {"study": "another"}, {"document": other.model_dump(mode="json")},
                   {"document": other.model_dump(mode="json"), "sha256": other.digest()}):  # fmt: skip
        with pytest.raises(SigningError):
            Query.model_validate(values | change).require_believable(key)
    forge(coordinator, "DELETE FROM consents")
    forge(coordinator, "UPDATE queries SET number = 7")
    with pytest.raises(RowBroken):
        shown(coordinator, 7)


SET_BACK = {
    "failed": "UPDATE queries SET answer = NULL, state = 'failed', reason = 'stopped'",
    "and its round": "UPDATE queries SET answer = NULL, state = 'failed', reason = 'stopped', round = NULL",
    "waiting": "UPDATE queries SET answer = NULL, state = 'waiting', due_at = 0",
    "waiting, of no round": "UPDATE queries SET answer = NULL, state = 'waiting', due_at = 0, round = NULL",
    "asked": "UPDATE queries SET answer = NULL, state = 'asked'",
}


@pytest.mark.quick("sqlite-asked")
@pytest.mark.parametrize("how", SET_BACK)
def test_an_answered_question_that_is_set_back_stops_the_study_and_is_not_asked(
    coordinator: Coordinator, how: str
) -> None:
    """No person is asked again, and nothing is charged again: an operator who asks is told, and so is the worker."""
    _answered(coordinator)
    forge(coordinator, SET_BACK[how])
    with pytest.raises(Rejected) as refused:
        ask.ask(coordinator, STUDY, document())
    assert refused.value.extra["stop_reason"] == "database-differs"
    work(coordinator)
    assert stop_reason(coordinator) == "database-differs"
    assert kinds(coordinator) == ["asked", "settled"]


@pytest.mark.quick("sqlite-waiting", "sqlite-waiting, of no round")
@pytest.mark.parametrize("how", ["waiting", "waiting, of no round"])
def test_the_worker_finds_it_before_it_opens_a_round(coordinator: Coordinator, how: str) -> None:
    _answered(coordinator)
    forge(coordinator, SET_BACK[how])
    work(coordinator)
    assert stop_reason(coordinator) == "database-differs"
    assert kinds(coordinator) == ["asked", "settled"]


@pytest.mark.quick("sqlite")
def test_with_its_round_set_back_too_it_is_as_if_the_answer_were_lost(coordinator: Coordinator) -> None:
    """Consistent, as where files were lost. It is refused all the same."""
    _answered(coordinator)
    forge(coordinator, SET_BACK["failed"])
    forge(coordinator, "UPDATE rounds SET state = 'abandoned', reason = 'updates-lost'")
    with pytest.raises(Rejected) as refused:
        ask.ask(coordinator, STUDY, document())
    assert refused.value.code == "query-opened"
    assert kinds(coordinator) == ["asked", "settled"]


@pytest.mark.quick("sqlite-UPDATE queries SET state = 'waiting', due_at = 0")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE queries SET state = 'waiting', due_at = 0",
        "UPDATE queries SET state = 'waiting', due_at = 0, round = NULL",
        "UPDATE queries SET state = 'failed', reason = 'stopped'",
    ],
)
def test_a_round_under_way_is_not_opened_twice(coordinator: Coordinator, statement: str) -> None:
    hospitals = open_asked(coordinator)
    query = consented(coordinator, hospitals, document())
    forge(coordinator, statement)
    for hospital in hospitals:
        send(hospital, query)
    work(coordinator)
    assert stop_reason(coordinator) == "database-differs"
    assert kinds(coordinator).count("asked") == 1


@pytest.mark.quick("sqlite-0.0", "sqlite-1e+300", "sqlite-None")
@pytest.mark.parametrize("due_at", [0.0, 1e300, None])
def test_when_it_is_due_says_nothing_about_who_consents(
    coordinator: Coordinator, clock: FakeClock, due_at: float | None
) -> None:
    hospitals = open_asked(coordinator)
    ask.ask(coordinator, STUDY, document())
    forge(coordinator, "UPDATE queries SET due_at = :to", to=due_at)
    work(coordinator)
    assert kinds(coordinator) in ([], ["cancelled"])
    assert all(hospital.assignment() is None for hospital in hospitals)


@pytest.mark.quick("sqlite")
def test_a_forged_yes_brings_a_question_and_no_answer(coordinator: Coordinator) -> None:
    """Consents are no keys: what a hospital answers it decides itself (see the tests of hospitals)."""
    open_asked(coordinator)
    ask.ask(coordinator, STUDY, document())
    yes = json.dumps({"allowed": True, "code": "", "detail": ""})
    written = "INSERT INTO consents (study_id, query, client, consent, at, written_by) "
    for name in ("h0", "h1", "h2"):
        forge(coordinator, written + "SELECT id, 1, :client, :yes, 0, 'x' FROM studies", client=name, yes=yes)
    forge(coordinator, "UPDATE queries SET due_at = 0")
    work(coordinator)
    assert show_query(coordinator, STUDY, 1, with_clients=True).allowed == 3
    assert kinds(coordinator) == ["asked"]


@pytest.mark.quick("sqlite")
def test_queries_are_listed_by_number_and_state_without_answers(coordinator: Coordinator) -> None:
    """Whose word is whose only operators see, and every hospital its own."""
    _answered(coordinator)
    other = ask.ask(coordinator, STUDY, document(noise_multiplier=9.0)).body
    ask.consent(coordinator, STUDY, other.number, "h1", Consent(allowed=False, code="own-rules"))
    page = list_queries(coordinator, STUDY, with_clients=False, limit=1)
    assert ([query.number for query in page.queries], page.next) == ([1], 1)
    assert (page.queries[0].state, page.queries[0].answered, page.queries[0].consents) == ("answered", None, None)
    waiting = list_queries(coordinator, STUDY, with_clients=True, state="waiting")
    assert ([query.number for query in waiting.queries], waiting.next) == ([2], None)
    (query,) = waiting.queries
    assert (query.allowed, query.refused, query.needed) == (0, 1, 2)
    assert [(said.client, said.consent.code) for said in query.consents or ()] == [("h1", "own-rules")]
    own = [show_query(coordinator, STUDY, 2, with_clients=False, own_client=name).consents for name in ("h0", "h1")]
    assert [len(consents or ()) for consents in own] == [0, 1]
    with pytest.raises(Rejected, match="unknown-query"):
        show_query(coordinator, STUDY, 3, with_clients=True)


def _answered(coordinator: Coordinator) -> Query:
    hospitals = open_asked(coordinator)
    query = consented(coordinator, hospitals, document())
    for hospital in hospitals:
        send(hospital, query)
    work(coordinator)
    return shown(coordinator)
