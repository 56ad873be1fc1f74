"""Studies for every page and state of the dashboard, on a coordinator that runs, with the pages' addresses.

Rounds are those of `seeded_studies`. Questions go their whole way through the coordinator's use cases: hospitals
consent and send sums over patients from a seed, with the noise that the study asks of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray
from sqlalchemy import text

from server.services.queries import ask, records, show
from study_protocol.queries.kinds.distances import LOSS
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.queries import Consent, QueryDocument
from study_protocol.wire.tensors import ANSWER_TENSOR, encode
from tests.factories.evaluations import EVALUATIONS, evaluated
from tests.factories.hospital_double import MODEL, Hospital, UseCases
from tests.factories.live_coordinator import Live
from tests.factories.questions import DOCUMENTS, patients
from tests.factories.settings import statistics_settings
from tests.harness import seeded_studies as seeded

HOSPITALS = ("coast", "harbour", "hill", "lake", "valley")
LONG_NAME = "university-hospital-of-the-northern-provinces"
LONG_TITLE = (
    "Rückkehr auf die Intensivstation innerhalb von 30 Tagen nach Lungenentzündungsbehandlung: "
    "Donaudampfschifffahrtsgesellschaftskrankenhausverbund <b>&amp;</b>"
)
BOTH = {"bayesian": 3.0, "classical": 8.0}
ROUNDS = (1, 100, 1000)
SETTINGS: dict[str, Any] = {"noise": 40.0, "hospitals": len(HOSPITALS)}
_ASKING = {"max_queries": 20, "max_cells": 1000, "share": 0.2}
_DAYS: list[float] = [0.0, 30.0, 60.0, 90.0, 120.0, 150.0, 180.0]
# Few events: of neither sex half have had one at the end.
SURVIVAL: dict[str, Any] = {
    "kind": "survival",
    "title": "Survival after discharge",
    "time": {"column": "days", "edges": _DAYS},
    "event": {"column": "died", "categories": ["1"]},
    "by": {"column": "sex", "categories": ["f", "m"]},
    "times": [90.0, 180.0],
}
LONG_CELLS: dict[str, Any] = {
    "kind": "table",
    "title": "Diagnosis at discharge, by every group that the register knows",
    "variables": [
        {"column": "diagnosis", "categories": [f"{name} {place}" for name in _NAMES for place in range(15)]}
        for _NAMES in [("chronic obstructive pulmonary disease with exacerbation", "sepsis")]
    ],
}
# A block for each hospital. The last one refuses.
BY_HOSPITAL: dict[str, dict[str, Any]] = {
    "hospitals": {**DOCUMENTS["table"], "title": "Age and sex of each hospital", "by": "hospital"},
    "hospitals-survival": {**SURVIVAL, "title": "Survival at each hospital", "by": "hospital"},
    "hospitals-count": {"kind": "count", "title": "Patients of each hospital", "by": "hospital"},
}
SYNTHESIS: dict[str, Any] = {
    "columns": [
        {"column": "age", "edges": [30, 40, 50, 60, 70, 80, 90]},
        {"column": "pressure", "edges": [90, 120, 150]},
        {"column": "sex", "categories": ["f", "m"]},
        {"column": "died", "categories": ["0", "1"]},
    ],
    "outcome": "sex",
    "allowance": 9.0,
    "patients": 5000,
    "rows": 20_000,
}
_PREDICTORS = [{"column": "age", "low": 0, "high": 100}, {"column": "pressure", "low": 50, "high": 250}]
REGRESSIONS: dict[str, dict[str, Any]] = {
    "logistic": {
        "kind": "glm",
        "title": "Sex by age and pressure",
        "family": "logistic",
        "steps": 3,
        "outcome": {"column": "sex", "categories": ["f"]},
        "predictors": _PREDICTORS,
    },
    "linear": {
        "kind": "glm",
        "title": "Pressure by age and sex",
        "family": "linear",
        "steps": 2,
        "outcome": _PREDICTORS[1],
        "predictors": [_PREDICTORS[0], {"column": "sex", "categories": ["f", "m"], "reference": "m"}],
    },
}
REGRESSIONS["waiting"] = REGRESSIONS["logistic"] | {"title": "The same, and it waits"}
QUESTIONS: dict[str, dict[str, Any]] = DOCUMENTS | {"survival": SURVIVAL, "long-cells": LONG_CELLS} | BY_HOSPITAL


def seed_rounds(
    coordinator: Live, rounds: Sequence[int] = ROUNDS, kinds: Sequence[str] = ("bounded", "counted")
) -> dict[str, str]:
    """Studies that train, with so many rounds, kept by ε or by counting. Returns name and address of each page."""
    pages: dict[str, str] = {}
    for number in rounds:
        past = dict.fromkeys((place for place in (5, 6, 7, 34) if place < number), "too-few-clients")
        how = {
            "bounded": seeded.settings("parallel", rounds=2 * number, epsilons=BOTH, **SETTINGS),
            "counted": _counted(number + 20),
        }
        for name in kinds:
            study = f"{name}-{number}"
            open_study(coordinator, study, f"Early warning of sepsis, rounds: {number}", how[name])
            seeded.write(coordinator, study, seeded.History(number, past, hours=0.2))
            pages[study] = f"/dashboard/{study}"
    return pages


def _counted(rounds: int, **options: Any) -> AnySettings:
    plan = {"epsilons": {"classical": 2.0}, "enforcement": "fixed-plan", **SETTINGS}
    return seeded.settings("parallel", rounds=rounds, **plan | options)


def seed_states(coordinator: Live) -> dict[str, str]:
    """A study in each state of its life. Returns name and address of each page."""
    plain = seeded.settings("parallel", rounds=60, epsilons=BOTH, **SETTINGS)
    open_study(coordinator, "draft", "", plain, model=False)
    open_study(coordinator, "joining", LONG_TITLE, plain)
    open_study(coordinator, "resting", "Falls on the ward", plain)
    seeded.write(coordinator, "resting", seeded.History(12, open=False))
    _act(coordinator, "resting", "pause")
    open_study(coordinator, "spent", "Readmission", seeded.settings("parallel", rounds=60, epsilons=BOTH, **SETTINGS))
    seeded.write(coordinator, "spent", seeded.History(60, open=False))
    open_study(coordinator, "trained", "Training is done", _counted(12, statistics=_ASKING, noise=20.0))
    seeded.write(coordinator, "trained", seeded.History(12, open=False))
    asking = open_study(coordinator, "asking", "Questions first", _counted(40, statistics=_ASKING, noise=20.0))
    _act(coordinator, "asking", "start?questions_first=true")
    _ask_all(coordinator, "asking", asking, {"table": DOCUMENTS["table"]}, noise_multiplier=20.0)
    ask.ask(coordinator.coordinator, "asking", _document({"kind": "count", "noise_multiplier": 20.0}))
    tiny = _counted(400, epsilons={"classical": 0.0123456}, noise=9000.0)
    open_study(coordinator, "tiny", "A very small ε", tiny)
    seeded.write(coordinator, "tiny", seeded.History(25))
    many = [f"{LONG_NAME}-{number}" for number in range(30)]
    joint = seeded.settings("joint", rounds=90, epsilons=BOTH, noise=40.0, hospitals=len(many))
    open_study(coordinator, LONG_NAME, "Thirty hospitals, four limits", joint, many)
    seeded.write(coordinator, LONG_NAME, seeded.History(40, {7: "too-few-keys"}))
    open_study(coordinator, "stopped", "Stopped early", plain)
    seeded.write(coordinator, "stopped", seeded.History(3, open=False))
    _act(coordinator, "stopped", "stop")
    # The budget of one is used: the worker ends it.
    coordinator.work()
    open_study(coordinator, "forged", "Changed outside the coordinator", plain)
    tamper(coordinator, "forged")
    names = ("draft", "joining", "asking", "resting", "spent", "trained", "tiny", LONG_NAME, "stopped", "forged")
    asked = {f"asking-{tab}": f"/dashboard/asking#{tab}" for tab in ("questions", "question-1", "question-2")}
    return {"studies": "/dashboard", **{name: f"/dashboard/{name}" for name in (*names, "nowhere")}, **asked}


def tamper(coordinator: Live, study: str) -> None:
    """Write into the database without the coordinator's key."""
    change = f"UPDATE budgets SET limits = '[]' WHERE study_id = (SELECT id FROM studies WHERE name = '{study}')"
    coordinator.coordinator.database.write("forge", lambda tx: tx.session.execute(text(change)))


def seed_questions(coordinator: Live, questions: Mapping[str, Mapping[str, Any]] = QUESTIONS) -> dict[str, str]:
    """Questions of every kind, answered, and others that wait, failed or do not exist. Returns the pages' addresses."""
    study = "registry"
    chosen = statistics_settings(masked=False, epsilon=15.0)
    open_study(coordinator, "unasked", "A registry without a question", chosen, start=True)
    hospitals = open_study(coordinator, study, "A registry of patients", chosen, HOSPITALS[:3], start=True)
    asked = _ask_all(coordinator, study, hospitals, questions)
    failed = ask.ask(coordinator.coordinator, study, _document({"kind": "count", "title": "Refused"})).body.number
    for hospital in hospitals[:2]:
        ask.consent(coordinator.coordinator, study, failed, hospital.name, Consent(allowed=False, code="own-policy"))
    waits = ask.ask(coordinator.coordinator, study, _document({"kind": "count", "title": "Who waits?"})).body.number
    numbers = {**asked, "refused": failed, "waiting": waits, "unknown": waits + 7}
    pages = {f"question-{name}": f"/dashboard/{study}#question-{number}" for name, number in numbers.items()}
    return {
        "registry": f"/dashboard/{study}",
        "questions": f"/dashboard/{study}#questions",
        "unasked": "/dashboard/unasked#questions",
        **pages,
    }


def seed_regression(coordinator: Live) -> dict[str, str]:
    """A logistic and a linear regression, answered, and one that waits at its second step."""
    study = "regression"
    chosen = statistics_settings(masked=False, epsilon=15.0)
    hospitals = open_study(coordinator, study, "A registry of patients", chosen, HOSPITALS[:3], start=True)
    pages: dict[str, str] = {}
    for name, question in REGRESSIONS.items():
        document: QueryDocument | None = _document(question, noise_multiplier=2.0)
        while document is not None:
            number = answer(coordinator, study, hospitals, document, name)
            query = show.show_query(coordinator.coordinator, study, number, with_clients=True)
            pages[f"{name}-{document.step}"] = f"/dashboard/{study}#question-{number}"
            follower = None if query.place is None else query.place.next
            is_followed = follower is not None and name != "waiting"
            following = (
                show.show_query(coordinator.coordinator, study, follower or 0, with_clients=True).document
                if is_followed
                else None
            )
            document = following
    return pages


def seed_synthesis(coordinator: Live) -> dict[str, str]:
    """Synthetic records: of all answers, after the first one, and before any."""
    for study, stages in (("synthetic", 3), ("synthetic-begun", 1), ("synthetic-new", 0)):
        open_synthesis(coordinator, study, stages)
    names = ("synthetic", "synthetic-begun", "synthetic-new")
    return {study: f"/dashboard/{study}#synthesis" for study in names}


def open_synthesis(coordinator: Live, study: str, stages: int) -> None:
    """A study of synthetic records after so many of its answers."""
    chosen = statistics_settings(masked=False, epsilon=20.0, synthesis=SYNTHESIS)
    hospitals = open_study(coordinator, study, "Records to look at", chosen, HOSPITALS[:3], start=True)
    for stage in range(stages):
        document = records.progress(coordinator.coordinator, study).chain.document
        # Without pairs that are worth their noise the rule ends one question earlier.
        if document is not None:
            answer(coordinator, study, hospitals, document, f"stage-{stage}")


def seed_evaluations(coordinator: Live) -> dict[str, str]:
    """Models that are evaluated by questions, on patients who are set aside."""
    study = "evaluated"
    how = _counted(3, statistics=_ASKING, evaluation={"share": 0.4}, noise=20.0)
    hospitals = open_study(coordinator, study, "Is the model right for every group?", how)
    seeded.write(coordinator, study, seeded.History(3, open=False))
    forms = {form: {**EVALUATIONS[form], "model": 1} for form in ("tree", "classes", "number")}
    numbers = _ask_all(coordinator, study, hospitals, forms, noise_multiplier=9.0)
    return {f"evaluation-{form}": f"/dashboard/{study}#question-{number}" for form, number in numbers.items()}


def seed_distances(coordinator: Live) -> dict[str, str]:
    """What training has cost each patient, by hospital: the certificate's numbers on the study's page."""
    study = "typical"
    asking = {"max_queries": 20, "max_cells": 1000}
    how = seeded.settings("parallel", rounds=20, epsilons=BOTH, statistics=asking, **SETTINGS)
    hospitals = open_study(coordinator, study, "For whom does the number speak?", how)
    seeded.write(coordinator, study, seeded.History(20, open=False))
    answer(coordinator, study, hospitals, _document({"kind": "distances", "by": "hospital"}), "distances")
    return {study: f"/dashboard/{study}"}


def _ask_all(
    coordinator: Live,
    study: str,
    hospitals: Sequence[Hospital],
    questions: Mapping[str, Mapping[str, Any]],
    **options: Any,
) -> dict[str, int]:
    return {
        name: answer(coordinator, study, hospitals, _document(question, **options), name)
        for name, question in questions.items()
    }


def _document(question: Mapping[str, Any], **options: Any) -> QueryDocument:
    return QueryDocument.model_validate({"question": {"noise_multiplier": 6.0, **options, **question}})


def answer(coordinator: Live, study: str, hospitals: Sequence[Hospital], asked: QueryDocument, form: str) -> int:
    """Ask, consent, send every hospital's sum with its part of the noise. Returns the number of the question."""
    own = coordinator.coordinator
    number = ask.ask(own, study, asked).body.number
    # By hospital one of them refuses, so that its numbers are not there.
    answering = hospitals[:-1] if asked.question.is_by_hospital else hospitals
    for hospital in hospitals:
        allowed = hospital in answering
        code = "own-policy" if not allowed else ""
        ask.consent(own, study, number, hospital.name, Consent(allowed=allowed, code=code))
    coordinator.work()
    query = show.show_query(own, study, number, with_clients=True)
    assert query.round is not None, query
    for place, hospital in enumerate(answering):
        total = _noised_sum(query.document, form, place, len(answering), hospital.name)
        hospital.send(query.round, encode({ANSWER_TENSOR: total}))
    coordinator.work()
    query = show.show_query(own, study, number, with_clients=True)
    assert query.state == "answered", (form, query.state, query.reason)
    return number


def _noised_sum(asked: QueryDocument, form: str, place: int, hospitals: int, hospital: str) -> NDArray[np.float64]:
    question, spacing = asked.question, asked.question.grid().spacing
    columns = evaluated(form, 400, place) if form in EVALUATIONS else {**patients(400, place), **_followed(400, place)}
    if form == "distances":
        columns = {LOSS: np.random.default_rng(place).beta(0.3, 4.0, 1000 * (place + 1))}
    noise = question.noise_multiplier * question.sensitivity / np.sqrt(hospitals)
    steps = np.random.default_rng(1000 + place).normal(0.0, noise / spacing, question.cells)
    return question.placed(question.total(columns, spacing), hospital) + np.round(steps)


def _followed(count: int, seed: int) -> dict[str, NDArray[Any]]:
    """days followed, died, and a diagnosis."""
    source = np.random.default_rng(seed)
    labels = np.array([*LONG_CELLS["variables"][0]["categories"]], object)
    return {
        "days": source.uniform(5.0, 240.0, count),
        "died": (source.uniform(size=count) < 0.45).astype(np.float64),
        "diagnosis": source.choice(labels, count),
    }


def open_study(
    coordinator: Live,
    name: str,
    title: str,
    settings: AnySettings,
    hospitals: Sequence[str] = HOSPITALS,
    *,
    model: bool = True,
    start: bool = False,
) -> list[Hospital]:
    """Open a study with its initial model, if it trains, and enrol the hospitals."""
    must(coordinator, "POST", "/v1/studies", json={"study": name, "title": title, "settings": settings.as_json()})
    if model and settings.as_json().get("training") is not None:
        must(coordinator, "PUT", f"/v1/studies/{name}/models/0", content=encode(MODEL))
    way = UseCases(coordinator.coordinator)
    doubles = [Hospital(way, name, hospital, _key(f"{name} {hospital}")) for hospital in hospitals]
    if model:
        for double in doubles:
            double.enrol()
    if start:
        _act(coordinator, name, "start")
    return doubles


def _key(words: str) -> Ed25519PrivateKey:
    """The same key for the same words: pictures show hashes of it."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(words.encode()).digest())


def _act(coordinator: Live, study: str, action: str) -> None:
    must(coordinator, "POST", f"/v1/studies/{study}/{action}")


def must(coordinator: Live, method: str, path: str, **options: Any) -> None:
    """Ask as the operator. Whatever is not accepted is a failure."""
    reply = coordinator.operator(method, path, **options)
    assert reply.status_code < 300, reply.text
