"""The campaign reports a broken law: each law is shown a study whose programs really break it, and names it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from accounting.budget.budget import Budget
from client_sdk.errors import LedgerNotExtended
from tests.harness import tiny
from tests.harness.finished_processes import FinishedProcesses
from tests.harness.finished_processes import become as become_wardround
from tests.harness.forked import ForkedProcesses
from tests.harness.laws import LawBroken
from tests.harness.storm import PLAIN, Storm


def _forget_an_update() -> None:
    """The coordinator acknowledges an update of round 1, and keeps another digest."""
    from server.db import rows
    from server.services.rounds import submit

    original = submit._record

    def record(tx: Any, slot: Any, blob: Any, findings: Any) -> Any:
        written = original(tx, slot, blob, findings)
        if (slot.round, slot.client) == (1, "alpha"):
            study = rows.find_study(tx, slot.study)
            rows.lock_participant(tx, rows.share_round(tx, study.id, 1), "alpha").sha256 = "0" * 64
        return written

    submit._record = record


def _release_without_charge() -> None:
    """The coordinator gives the charge of round 1 back and releases it nevertheless; no hospital looks.

    Its ledger names no models: where it does, no reader of it takes a model of a round that was given back.
    """
    from client_sdk.study.entries import EntryChecks
    from client_sdk.study.models import StudyModels
    from server.db.ledger_store import LedgerAccount
    from server.services.rounds import release
    from server.services.studies import lifecycle

    original, cancel, row = LedgerAccount.conclude, Budget.cancel, lifecycle._study_row

    def conclude(self: Any, kind: Any, round: Any, body: Any, ready: Any = None) -> Any:
        if (kind, round.number) == ("settled", 1):
            return original(self, "cancelled", round, {"reason": "stopped"}, None)
        return original(self, kind, round, body, ready)

    def counted(self: Budget, round: int, reason: str) -> None:
        # Otherwise the study would go on for a round more, which hospitals refuse: they count what they sent.
        cancel(self, round, reason)
        self.charged_rounds += 1

    lifecycle._study_row = lambda tx, request, names_models: row(tx, request, False)
    LedgerAccount.conclude = conclude  # type: ignore[method-assign]
    Budget.cancel = counted  # type: ignore[method-assign]
    EntryChecks._check_cancelled = lambda *_: None  # type: ignore[method-assign]
    # A model's file names the entry that settled its round; there is none.
    release.settled_at = lambda *_: (0, "0" * 64)  # type: ignore[attr-defined]
    StudyModels._require_of_round = lambda *_: None  # type: ignore[method-assign]


def _release_the_same_again() -> None:
    """The coordinator publishes in every round the model that the round started from."""
    from server.services.rounds import release
    from study_protocol.wire.tensor_files import read

    release.new_weights = lambda settings, weights, total, state: read(weights)


def _send_without_charge() -> None:
    """Hospitals note no charge beside what they send."""
    from client_sdk.guard.ledger import HospitalLedger

    original = HospitalLedger._ready

    def ready(self: Any, study: str, round: int, what: Any, sha256: str, size: int, charge: int | None) -> None:
        original(self, study, round, what, sha256, size, None)

    HospitalLedger._ready = ready  # type: ignore[method-assign]


def _forget_the_limits() -> None:
    """Everybody's budget allows rounds past the limits, and hospitals do not count their own."""
    from accounting.budget.budget import Authorisation
    from client_sdk.study import work

    def authorise(self: Budget, round: int | None = None) -> Authorisation:
        is_allowed = self.charged_rounds < self.plan.max_steps
        return Authorisation(is_allowed, None if is_allowed else "max-steps-reached")

    Budget.authorise = authorise  # type: ignore[method-assign]
    work.require_within_study = lambda *_: None  # type: ignore[attr-defined]


def _become(breaks: Callable[[], None], arguments: list[str], env: dict[str, str], log: str) -> None:
    breaks()
    become_wardround(arguments, env, log)


class BrokenProcesses(ForkedProcesses):
    def __init__(self, breaks: Callable[[], None]) -> None:
        super().__init__()
        self.become = partial(_become, breaks)


def _calm_study(home: Path, processes: ForkedProcesses, *, by_limit: bool = False) -> Budget:
    """A study that nothing happens to, of two rounds, or of those that its limit allows."""
    storm = Storm(home, None, processes, 1, kinds={}, network_rate=0.0)
    try:
        storm.begin()
        settings = tiny.study_settings("parallel", len(PLAIN), 1 if by_limit else 2, masked=False, by_limit=by_limit)
        return storm.run("calm", settings, PLAIN)
    finally:
        storm.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("breaks", "by_limit", "law"),
    [
        (_forget_an_update, False, "alpha was told that round 1 has its update"),
        (_release_without_charge, False, "was released without its charge"),
        (_release_the_same_again, False, "two rounds released the same model"),
        (_send_without_charge, False, "without a charge of its own"),
        (_forget_the_limits, True, "no further round: budget-exhausted"),
    ],
)
def test_a_program_that_breaks_a_law_is_reported(
    tmp_path: Path, breaks: Callable[[], None], by_limit: bool, law: str
) -> None:
    with BrokenProcesses(breaks) as processes, pytest.raises((LawBroken, LedgerNotExtended), match=law):
        _calm_study(tmp_path, processes, by_limit=by_limit)


@pytest.mark.slow
def test_a_sound_study_keeps_every_law_and_ends_by_its_limit(tmp_path: Path) -> None:
    with FinishedProcesses() as processes:
        budget = _calm_study(tmp_path, processes, by_limit=True)
    # The Bayesian charge of a round is below its worst, but the classical limit allows one round and no more.
    assert budget.charged_rounds == 1
    assert budget.finished == "budget-exhausted"
