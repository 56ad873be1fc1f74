"""Open, show, start, pause, resume, stop a study."""

from __future__ import annotations

from typing import Literal

from client_sdk.protocol.messages import Study, StudyCreate, StudyList
from server.services.ports import Coordinator, Written

Action = Literal["start", "pause", "resume", "stop"]


def create(coordinator: Coordinator, request: StudyCreate) -> Written[Study]:
    """Open a study with its budget and the first ledger entry. The same request again: created False.

    Raises:
        Rejected: `study-exists` (other settings under this name), `first-round-overspends` (extra
            noise_one_round, noise_horizon), `invalid-request` (settings no budget can be kept for).
    """
    raise NotImplementedError


def show(coordinator: Coordinator, study: str) -> Study:
    """Raises Rejected `unknown-study`."""
    raise NotImplementedError


def list_studies(coordinator: Coordinator, after: str | None = None, limit: int = 100) -> StudyList:
    """In order of their names; `next` is the cursor to pass as `after`."""
    raise NotImplementedError


def act(coordinator: Coordinator, study: str, action: Action) -> Study:
    """Repeatable. A stop ends the round under way and keeps its charge.

    Raises:
        Rejected: `unknown-study`, `model-missing`, `study-not-running`, `study-finished`, `frozen`.
    """
    raise NotImplementedError
