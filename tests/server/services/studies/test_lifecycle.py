"""Opening studies, looking at them, models, metrics, events, assignments."""

from __future__ import annotations

import numpy as np
import pytest

from server.domain.errors import Rejected
from server.services import events, views
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.studies import lifecycle, models
from study_protocol.study.messages import LedgerHead, Metrics, StudyCreate
from study_protocol.wire.signing import ASSIGNMENT, LEDGER_HEAD, decode_public_key, verify_document
from study_protocol.wire.tensors import TensorError
from tests.factories.hospital_double import Hospital, UseCases, update
from tests.factories.settings import limit, settings
from tests.factories.studies import open_study, put_model, work


def created(coordinator: Coordinator, name: str = "sepsis", **options: object) -> StudyCreate:
    request = StudyCreate(study=name, settings=settings(**options))  # type: ignore[arg-type]
    lifecycle.create(coordinator, request)
    return request


def test_opening_a_study_is_repeatable_and_its_name_is_taken(coordinator: Coordinator) -> None:
    request = StudyCreate(study="sepsis", settings=settings())
    first, again = lifecycle.create(coordinator, request), lifecycle.create(coordinator, request)
    assert (first.created, again.created) == (True, False)
    assert first.body == again.body
    assert first.body.settings_sha256 == request.settings.digest()
    with pytest.raises(Rejected, match="study-exists"):
        created(coordinator, max_steps=6)


def test_a_study_whose_first_round_overspends_says_so_and_what_would_fit(coordinator: Coordinator) -> None:
    with pytest.raises(Rejected) as refused:
        created(coordinator, noise_multiplier=0.1, sampling_rate=1.0)
    assert refused.value.code == "first-round-overspends"
    one, max_steps = refused.value.extra["noise_one_round"], refused.value.extra["noise_max_steps"]
    assert 0.1 < one <= max_steps
    with pytest.raises(Rejected, match="unknown-study"):
        lifecycle.show(coordinator, "sepsis")
    created(coordinator, noise_multiplier=one, sampling_rate=1.0)
    assert views.read_budget(coordinator, "sepsis").can_continue


@pytest.mark.quick("sqlite-absurd0", "sqlite-absurd1", "sqlite-absurd2")
@pytest.mark.parametrize(
    "absurd",
    [
        {"noise_multiplier": 0.299, "sampling_rate": 0.01, "classical_order": 1.0},
        {"limits": [limit("instance", epsilon=20.1)]},
        {"limits": [limit("instance", epsilon=8.0, delta=1.1e-3)]},
    ],
)
def test_a_guarantee_that_says_next_to_nothing_is_refused_unless_the_operator_wants_it(
    coordinator: Coordinator, absurd: dict[str, object]
) -> None:
    limits = {"limits": [limit("instance", epsilon=19.0)]} | absurd
    wanted = settings(**limits)  # type: ignore[arg-type]
    unsaid = wanted.model_copy(update={"beyond_bounds": False})
    with pytest.raises(Rejected, match="say --i-know") as refused:
        lifecycle.create(coordinator, StudyCreate(study="sepsis", settings=unsaid))
    assert refused.value.code == "beyond-bounds"
    # It stands in the settings, whose digest every assignment is signed over.
    shown = lifecycle.create(coordinator, StudyCreate(study="sepsis", settings=wanted)).body
    assert shown.settings.beyond_bounds
    assert shown.settings_sha256 != unsaid.digest()


def test_studies_are_listed_by_name_page_by_page(coordinator: Coordinator) -> None:
    for name in ("c", "a", "b"):
        created(coordinator, name)
    page = lifecycle.list_studies(coordinator, limit=2)
    assert ([study.study for study in page.studies], page.next) == (["a", "b"], "b")
    rest = lifecycle.list_studies(coordinator, after=page.next)
    assert ([study.study for study in rest.studies], rest.next) == (["c"], None)


def test_a_draft_has_a_budget_and_cannot_start(coordinator: Coordinator) -> None:
    created(coordinator)
    assert lifecycle.show(coordinator, "sepsis").state == "draft"
    assert views.read_budget(coordinator, "sepsis").round == 0
    with pytest.raises(Rejected, match="model-missing"):
        lifecycle.act(coordinator, "sepsis", "start")


def test_a_model_that_no_secure_sum_could_bear_is_refused_at_the_start(coordinator: Coordinator) -> None:
    """The scale is too coarse for the grid that masks work on; every round would be abandoned."""
    lifecycle.create(coordinator, StudyCreate(study="sepsis", settings=settings(masked=True, noise_multiplier=1e30)))
    put_model(coordinator, "sepsis")
    with pytest.raises(Rejected, match="clip_norm or noise_multiplier") as refused:
        lifecycle.act(coordinator, "sepsis", "start")
    assert refused.value.code == "invalid-request"
    assert lifecycle.show(coordinator, "sepsis").state == "enrolling"
    lifecycle.create(coordinator, StudyCreate(study="influenza", settings=settings(masked=True)))
    put_model(coordinator, "influenza")
    for name in ("h0", "h1", "h2", "h3"):
        Hospital(UseCases(coordinator), "influenza", name).enrol()
    assert lifecycle.act(coordinator, "influenza", "start").state == "running"


@pytest.mark.parametrize(
    ("model", "code"),
    [
        ({"w": np.zeros(3, np.float64)}, "wrong-dtype"),
        ({}, "wrong-names"),
        ({"w": np.zeros((0, 3), np.float32)}, "wrong-shape"),
    ],
)
def test_what_cannot_be_a_model(
    coordinator: Coordinator, model: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]], code: str
) -> None:
    created(coordinator)
    with pytest.raises(TensorError) as refused:
        put_model(coordinator, "sepsis", model)
    assert refused.value.code == code
    assert lifecycle.show(coordinator, "sepsis").state == "draft"


def test_nothing_is_known_of_an_unknown_study(coordinator: Coordinator) -> None:
    asked = [
        lambda: lifecycle.show(coordinator, "nowhere"),
        lambda: lifecycle.act(coordinator, "nowhere", "stop"),
        lambda: views.read_budget(coordinator, "nowhere"),
        lambda: ledger_page(coordinator, "nowhere"),
        lambda: views.locate_model(coordinator, "nowhere"),
        lambda: events.since(coordinator, "nowhere"),
        lambda: views.list_rounds(coordinator, "nowhere", with_clients=True),
        lambda: models.record_metrics(coordinator, "nowhere", 0, Metrics(evaluation_set="x", values={"accuracy": 1.0})),
    ]
    for ask in asked:
        with pytest.raises(Rejected, match="unknown-study"):
            ask()


def test_an_assignment_is_signed_and_names_what_it_relies_on(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator)
    assert hospitals[0].assignment() is None
    work(coordinator)
    given = hospitals[0].assignment()
    assert given is not None
    key = decode_public_key(coordinator.signer.public_key)
    verify_document(key, ASSIGNMENT, given.assignment.model_dump(mode="json"), given.signature)
    statement = views.read_budget(coordinator, "sepsis")
    assert f"sha256:{given.assignment.ledger.sha256}" == statement.ledger.head
    head = LedgerHead(study="sepsis", entries=statement.ledger.entries, sha256=given.assignment.ledger.sha256)
    verify_document(key, LEDGER_HEAD, head.model_dump(mode="json"), statement.ledger.signature)
    assert given.assignment.model == views.locate_model(coordinator, "sepsis", 0).info
    hospitals[0].send(1, update())
    assert hospitals[0].assignment() is None


@pytest.mark.quick("sqlite")
def test_a_ledger_is_read_in_pages_that_hang_together(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, max_steps=2)
    for number in (1, 2):
        work(coordinator)
        for hospital in hospitals:
            hospital.send(number, update())
    work(coordinator)
    first = ledger_page(coordinator, "sepsis", limit=4)
    assert ([entry.sequence for entry in first.entries], first.next) == ([1, 2, 3, 4], 4)
    second = ledger_page(coordinator, "sepsis", after=4)
    assert ([entry.sequence for entry in second.entries], second.next) == ([*range(5, 13)], None)
    assert second.entries[0].previous == first.entries[-1].sha256
    assert second.head == first.head
    assert second.head.head.sha256 == second.entries[-1].sha256
    assert ledger_page(coordinator, "sepsis", after=12).next is None


def test_metrics_belong_to_a_model(coordinator: Coordinator) -> None:
    open_study(coordinator)
    measured = Metrics(evaluation_set="held out", values={"accuracy": 0.9})
    assert models.record_metrics(coordinator, "sepsis", 0, measured).created
    mark = events.marks(coordinator, ["sepsis"])["sepsis"]
    assert not models.record_metrics(coordinator, "sepsis", 0, measured).created
    assert events.marks(coordinator, ["sepsis"])["sepsis"] == mark
    with pytest.raises(Rejected, match="unknown-model"):
        models.record_metrics(coordinator, "sepsis", 1, measured)


def test_events_are_numbered_without_gaps_and_marks_are_the_newest(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, max_steps=1)
    created(coordinator, "other")
    work(coordinator)
    for hospital in hospitals:
        hospital.send(1, update())
    work(coordinator)
    reported = events.since(coordinator, "sepsis")
    assert [event.id for event in reported] == list(range(1, len(reported) + 1))
    assert [event.kind for event in reported] == [
        "study-created",
        "study-enrolling",
        *["client-enrolled"] * 3,
        "study-running",
        "round-opened",
        "round-settled",
        "round-released",
        "study-finished",
    ]
    assert events.marks(coordinator, ["sepsis", "other", "nowhere"]) == {"sepsis": len(reported), "other": 1}
    assert [event.id for event in events.since(coordinator, "sepsis", after=8, limit=1)] == [9]


@pytest.mark.quick("sqlite")
def test_rounds_are_listed_in_pages(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, max_steps=3)
    for number in (1, 2, 3):
        work(coordinator)
        for hospital in hospitals:
            hospital.send(number, update())
    work(coordinator)
    page = views.list_rounds(coordinator, "sepsis", with_clients=False, limit=2)
    assert ([view.round for view in page.rounds], page.next) == ([1, 2], 2)
    rest = views.list_rounds(coordinator, "sepsis", with_clients=True, after=2)
    assert ([view.model_version for view in rest.rounds], rest.next) == ([3], None)
    assert rest.rounds[0].clients is not None
    with pytest.raises(Rejected, match="round-unknown"):
        views.show_round(coordinator, "sepsis", 4, with_clients=False)


def test_a_stranger_has_no_assignment(coordinator: Coordinator) -> None:
    open_study(coordinator)
    with pytest.raises(Rejected, match="unknown-client"):
        Hospital(UseCases(coordinator), "sepsis", "h9").assignment()
