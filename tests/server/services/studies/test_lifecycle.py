"""Opening, starting, stopping and deleting studies, and looking at them."""

from __future__ import annotations

import pytest

from server.domain.errors import Rejected
from server.services import events, views
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.studies import enrolment, models
from server.services.studies.lifecycle import Action, act, create, delete, list_studies, show
from study_protocol.study.messages import Metrics, StudyCreate
from tests.factories.hospital_double import Hospital, UseCases, update
from tests.factories.settings import limit, settings
from tests.factories.studies import FakeClock, open_study, put_model, work


def created(coordinator: Coordinator, name: str = "sepsis", **options: object) -> StudyCreate:
    request = StudyCreate(study=name, settings=settings(**options))  # type: ignore[arg-type]
    create(coordinator, request)
    return request


@pytest.mark.quick("sqlite")
def test_opening_a_study_is_repeatable_and_its_name_is_taken(coordinator: Coordinator) -> None:
    request = StudyCreate(study="sepsis", settings=settings())
    first, again = create(coordinator, request), create(coordinator, request)
    assert (first.created, again.created) == (True, False)
    assert first.body == again.body
    assert first.body.settings_sha256 == request.settings.digest()
    with pytest.raises(Rejected, match="study-exists"):
        created(coordinator, max_steps=6)


@pytest.mark.quick("sqlite")
def test_a_study_whose_first_round_overspends_says_so_and_what_would_fit(coordinator: Coordinator) -> None:
    with pytest.raises(Rejected) as refused:
        created(coordinator, noise_multiplier=0.1, sampling_rate=1.0)
    assert refused.value.code == "first-round-overspends"
    one, max_steps = refused.value.extra["noise_one_round"], refused.value.extra["noise_max_steps"]
    assert 0.1 < one <= max_steps
    with pytest.raises(Rejected, match="unknown-study"):
        show(coordinator, "sepsis")
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
        create(coordinator, StudyCreate(study="sepsis", settings=unsaid))
    assert refused.value.code == "beyond-bounds"
    # It stands in the settings, whose digest every assignment is signed over.
    shown = create(coordinator, StudyCreate(study="sepsis", settings=wanted)).body
    assert shown.settings.beyond_bounds
    assert shown.settings_sha256 != unsaid.digest()


@pytest.mark.quick("sqlite")
def test_studies_are_listed_by_name_page_by_page(coordinator: Coordinator) -> None:
    for name in ("c", "a", "b"):
        created(coordinator, name)
    page = list_studies(coordinator, limit=2)
    assert ([study.study for study in page.studies], page.next) == (["a", "b"], "b")
    rest = list_studies(coordinator, after=page.next)
    assert ([study.study for study in rest.studies], rest.next) == (["c"], None)


@pytest.mark.quick("sqlite")
def test_a_draft_has_a_budget_and_cannot_start(coordinator: Coordinator) -> None:
    created(coordinator)
    assert show(coordinator, "sepsis").state == "draft"
    assert views.read_budget(coordinator, "sepsis").round == 0
    with pytest.raises(Rejected, match="model-missing"):
        act(coordinator, "sepsis", "start")


@pytest.mark.quick("sqlite")
def test_a_model_that_no_secure_sum_could_bear_is_refused_at_the_start(coordinator: Coordinator) -> None:
    """The scale is too coarse for the grid that masks work on; every round would be abandoned."""
    create(coordinator, StudyCreate(study="sepsis", settings=settings(masked=True, noise_multiplier=1e30)))
    put_model(coordinator, "sepsis")
    with pytest.raises(Rejected, match="clip_norm or noise_multiplier") as refused:
        act(coordinator, "sepsis", "start")
    assert refused.value.code == "invalid-request"
    assert show(coordinator, "sepsis").state == "enrolling"
    create(coordinator, StudyCreate(study="influenza", settings=settings(masked=True)))
    put_model(coordinator, "influenza")
    for name in ("h0", "h1", "h2", "h3"):
        Hospital(UseCases(coordinator), "influenza", name).enrol()
    assert act(coordinator, "influenza", "start").state == "running"


@pytest.mark.quick("sqlite")
def test_nothing_is_known_of_an_unknown_study(coordinator: Coordinator) -> None:
    asked = [
        lambda: show(coordinator, "nowhere"),
        lambda: act(coordinator, "nowhere", "stop"),
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


@pytest.mark.quick("sqlite")
def test_a_start_needs_as_many_hospitals_as_a_round(coordinator: Coordinator) -> None:
    create(coordinator, StudyCreate(study="sepsis", settings=settings()))
    put_model(coordinator, "sepsis")
    Hospital(UseCases(coordinator), "sepsis", "h0").enrol()
    with pytest.raises(Rejected, match="1 of at least 2 hospitals") as refused:
        act(coordinator, "sepsis", "start")
    assert (refused.value.code, refused.value.extra) == ("too-few-enrolled", {"enrolled": 1, "min_clients": 2})
    assert show(coordinator, "sepsis").state == "enrolling"
    Hospital(UseCases(coordinator), "sepsis", "h1").enrol()
    assert act(coordinator, "sepsis", "start").state == "running"


@pytest.mark.quick("sqlite")
def test_the_counts_that_everybody_may_see(coordinator: Coordinator, clock: FakeClock) -> None:
    hospitals = open_study(coordinator)
    UseCases(coordinator).invite("sepsis", "late")
    shown = show(coordinator, "sepsis")
    assert (shown.clients, shown.invited, shown.under_way) == (3, 4, None)
    work(coordinator)
    hospitals[0].send(1, update(0.1))
    hospitals[1].refuse(1)
    now = show(coordinator, "sepsis").under_way
    assert now is not None
    assert (now.round, now.asked, now.present) == (1, 3, 2)
    enrolment.revoke(coordinator, "sepsis", "h2")
    clock.sleep(8 * 86400)
    shown = show(coordinator, "sepsis")
    assert (shown.clients, shown.invited) == (2, 2)


@pytest.mark.quick("sqlite")
def test_a_study_that_never_began_can_be_deleted(coordinator: Coordinator) -> None:
    create(coordinator, StudyCreate(study="sepsis", settings=settings()))
    put_model(coordinator, "sepsis")
    Hospital(UseCases(coordinator), "sepsis", "h0").enrol()
    token = UseCases(coordinator).invite("sepsis", "h1")
    for _ in range(2):
        delete(coordinator, "sepsis")
    assert list_studies(coordinator).studies == []
    shown = show(coordinator, "sepsis")
    assert (shown.state, shown.stop_reason) == ("finished", "deleted")
    assert [entry.kind for entry in ledger_page(coordinator, "sepsis").entries][-1] == "finished"
    with pytest.raises(Rejected, match="study-finished"):
        UseCases(coordinator).enrol(Hospital(UseCases(coordinator), "sepsis", "h1").enrolment(token))
    with pytest.raises(Rejected, match="was deleted"):
        create(coordinator, StudyCreate(study="sepsis", settings=settings()))


@pytest.mark.quick("sqlite-None")
@pytest.mark.parametrize("end", [None, "pause", "stop"])
def test_a_study_that_was_started_cannot_be_deleted(coordinator: Coordinator, end: Action | None) -> None:
    open_study(coordinator)
    if end is not None:
        act(coordinator, "sepsis", end)
    with pytest.raises(Rejected) as refused:
        delete(coordinator, "sepsis")
    assert refused.value.code == ("study-finished" if end == "stop" else "study-begun")
    assert "only a study that was never started can be deleted" in str(refused.value)
