"""Rounds in the clear of one study through the use cases: what is shown of them, and what its ledger says."""

from __future__ import annotations

from server.services import views
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from study_protocol.study.messages import LedgerEntry, RoundView
from tests.factories.hospital_double import Hospital
from tests.factories.ledgers import kinds_in
from tests.factories.settings import ORDERS
from tests.factories.studies import open_study, work

TERMS = tuple(1e-4 for _ in (0, *ORDERS))


def ledger(coordinator: Coordinator) -> list[LedgerEntry]:
    return ledger_page(coordinator, "sepsis").entries


def kinds(coordinator: Coordinator) -> list[str]:
    return kinds_in(ledger(coordinator))


def shown(coordinator: Coordinator, round: int = 1) -> RoundView:
    return views.show_round(coordinator, "sepsis", round, with_clients=True)


def collecting(coordinator: Coordinator, **options: object) -> list[Hospital]:
    hospitals = open_study(coordinator, **options)  # type: ignore[arg-type]
    work(coordinator)
    return hospitals
