"""A query's round at the hospital: what is refused, and how much noise is added."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from accounting.budget.ledger import Entry, append
from client_sdk.errors import BadAssignment, Refused
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.guard.split import PatientSplit
from client_sdk.outbox import Outbox
from client_sdk.study.answers import AnsweringWork, noise_share, require_never_opened
from client_sdk.study.preparation import able
from client_sdk.study.work import RoundCharges
from study_protocol.queries.kinds.distances import LOSS
from study_protocol.queries.question import Grid
from study_protocol.randomness.source import SeededSource
from study_protocol.study.messages import AssignmentBody, LedgerHead
from study_protocol.study.model_info import ModelInfo
from study_protocol.study.queries import QueryAsked
from tests.factories.hospitals import plain_policy, records
from tests.factories.scheduled_evaluations import STUDY, document, permission
from tests.factories.settings import settings


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[HospitalLedger]:
    with HospitalLedger.open(tmp_path / "ledger") as found:
        yield found


@pytest.mark.parametrize("somebody", [True, False])
def test_whether_a_column_lacks_is_said_also_where_nobody_is_set_aside(
    tmp_path: Path, ledger: HospitalLedger, somebody: bool
) -> None:
    data, policy = records(3), plain_policy(statistics={"queries": "allow"})
    split = next(
        one
        for n in range(256)
        if (one := PatientSplit(bytes([n]) * 32, 0.4)).set_aside(data.patients).any() == somebody
    )
    here = able(None, data, policy, STUDY, None, "cpu", 60.0, "mercy", "1", split)
    books, allowed = RoundCharges("sepsis", ledger, policy, Outbox(tmp_path)), permission(tmp_path, ledger, "allow")
    # Neither models nor a way out: it is refused before either is needed.
    models: Any = object()
    delivery: Any = SimpleNamespace(has_opened=lambda round: False)
    work = AnsweringWork("mercy", books, here, models, delivery, allowed)
    asked = document(groups=[{"column": "nowhere", "edges": [50]}])
    model = ModelInfo(version=2, sha256="a" * 64, bytes=9)
    with pytest.raises(Refused, match="nowhere") as refused:
        work.open(assigned(QueryAsked(number=1, document=asked, model=model)))
    assert refused.value.code == "unknown-column"


@pytest.mark.parametrize("ending", ["settled", "cancelled", "charged-in-full", None])
@pytest.mark.parametrize("opened", [False, True])
def test_what_was_opened_is_answered_no_more(ending: Any, opened: bool) -> None:
    entries: list[Entry] = []
    digest = "ab" * 32
    for kind, round in (("asked", 1), (ending, 1), ("asked", 2)):
        if kind is not None:
            entries.append(append(entries[-1] if entries else None, kind, round, {"query": digest}))
    require_never_opened(entries, "cd" * 32, 2, lambda round: True)
    require_never_opened(entries[:1], digest, 1, lambda round: True)
    if ending in ("cancelled", "charged-in-full") and not opened:
        require_never_opened(entries, digest, 2, lambda round: False)
        return
    with pytest.raises(Refused, match="round 1 opened") as refused:
        require_never_opened(entries, digest, 2, lambda round: opened)
    assert refused.value.code == "opened-before"


def assigned(query: QueryAsked) -> AssignmentBody:
    return AssignmentBody(
        study="sepsis",
        client="mercy",
        round=4,
        phase="query",
        deadline=datetime(2030, 1, 1, tzinfo=UTC),
        model=None,
        query=query,
        settings_sha256=STUDY.digest(),
        roster_sha256="b" * 64,
        ledger=LedgerHead(study="sepsis", entries=1, sha256="c" * 64),
    )


@pytest.mark.parametrize(("std", "shares"), [(64.0, 1), (64.0, 4), (1000.5, 3)])
def test_shares_of_all_honest_hospitals_add_up_to_the_noise_of_the_grid(std: float, shares: int) -> None:
    """Variances of independent discrete Gaussians add up; of 40,000 draws the deviation is known to 0.35 %."""
    source = SeededSource(5, allow_insecure=True)
    grid = Grid(spacing=1.0, std=std, sensitivity=1.0)
    parts = [noise_share(grid, shares, 40_000, source) for _ in range(shares)]
    assert np.sum(parts, axis=0).std() == pytest.approx(std, rel=0.02)
    assert parts[0].std() == pytest.approx(std / np.sqrt(shares), rel=0.02)
    assert parts[0].dtype == np.int64


@pytest.mark.parametrize(
    ("query", "words"),
    [
        (None, "the assignment of a query names none"),
        (QueryAsked(number=1, document=document()), "names none"),
        (
            QueryAsked(number=1, document=document(3), model=ModelInfo(version=2, sha256="a" * 64, bytes=9)),
            "another model than the question is about",
        ),
    ],
    ids=["no question", "no model", "another model"],
)
def test_an_assignment_that_names_another_thing_than_its_question_is_not_trusted(
    tmp_path: Path, ledger: HospitalLedger, query: QueryAsked | None, words: str
) -> None:
    policy = plain_policy(statistics={"queries": "allow"})
    here = able(None, records(3), policy, STUDY, None, "cpu", 60.0, "mercy", "1", PatientSplit(bytes(32), 0.4))
    delivery: Any = SimpleNamespace(has_opened=lambda round: False)
    charges = RoundCharges("sepsis", ledger, policy, Outbox(tmp_path))
    work = AnsweringWork("mercy", charges, here, None, delivery, permission(tmp_path, ledger, "allow"))
    body = assigned(QueryAsked(number=1, document=document())).model_copy(update={"query": query})
    with pytest.raises(BadAssignment, match=words):
        work.open(body)


def test_what_a_charge_names_is_the_question_about_its_model(tmp_path: Path, ledger: HospitalLedger) -> None:
    delivery: Any = None
    here: Any = None
    charges = RoundCharges("sepsis", ledger, plain_policy(), Outbox(tmp_path))
    work = AnsweringWork("mercy", charges, here, None, delivery, permission(tmp_path, ledger))
    asked = document()
    about = QueryAsked(number=1, document=asked, model=ModelInfo(version=2, sha256="a" * 64, bytes=9))
    text = f'{{"model":"{"a" * 64}","query":"{asked.digest()}"}}'
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert work.subjects(assigned(about)) == (digest, asked.digest())


def test_distances_are_those_of_the_patients_who_are_trained_on(tmp_path: Path, ledger: HospitalLedger) -> None:
    chosen = settings(bayesian={"composition": "running", "estimator": "betting", "adversary": "path"})
    data, policy = records(3), plain_policy(statistics={"queries": "allow"})
    here = able(None, data, policy, chosen, None, "cpu", 60.0, "mercy", "1", None)
    assert here.training is not None
    patients = here.training.dataset.patients
    moments = LogMomentBounds(chosen, patients)
    norms = np.linspace(0.0, 1.0, len(patients))
    moments.measure(norms, rounding=0.0)
    delivery: Any = None
    books = RoundCharges("sepsis", ledger, policy, Outbox(tmp_path))
    work = AnsweringWork("mercy", books, here, None, delivery, permission(tmp_path, ledger, "allow"))
    before = work._trained()  # pyright: ignore[reportPrivateUsage]
    assert before.identifiers == tuple(patients)
    assert (before.columns(None)[LOSS] == 1).all(), "before any round the worst case counts"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(HospitalLedger, "sums", lambda self, study: moments.to_bytes())
        losses = work._trained().columns(None)[LOSS]  # pyright: ignore[reportPrivateUsage]
    assert losses == pytest.approx(moments.losses())
    assert losses[0] == pytest.approx(0, abs=1e-6)
    assert losses[-1] == pytest.approx(1)
