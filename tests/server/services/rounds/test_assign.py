"""Assignments: who gets which, what they are signed over, and how long they are handed out."""

from __future__ import annotations

import pytest

from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from study_protocol.study.messages import LedgerHead
from study_protocol.wire.signing import ASSIGNMENT, LEDGER_HEAD, decode_public_key, verify_document
from tests.factories.hospital_double import Hospital, UseCases, update
from tests.factories.studies import open_study, work


@pytest.mark.quick("sqlite")
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
def test_a_stranger_has_no_assignment(coordinator: Coordinator) -> None:
    open_study(coordinator)
    with pytest.raises(Rejected, match="unknown-client"):
        Hospital(UseCases(coordinator), "sepsis", "h9").assignment()
