"""Follows a study from outside: reads its signed ledger, replays it, and hands over round after round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from accounting.budget.budget import Budget
from accounting.budget.ledger import Entry, verify_chain
from accounting.plan.plan import Plan
from client_sdk.api.calls import round_view
from client_sdk.api.client import Client
from study_protocol.study.messages import RoundView

PAUSE_SECONDS = 0.15
METRICS_SECONDS = 30.0
CHARGES = ("settled", "charged-in-full", "cancelled")


@dataclass(frozen=True)
class RoundReport:
    """A finished round: as the coordinator shows it, and what this side's own replay says was spent after it."""

    view: RoundView
    limits: tuple[Mapping[str, Any], ...]


class Follower:
    """Replays the ledger entry by entry; `check` raises when somebody needed for the study has died."""

    def __init__(self, operator: Client, study: str, check: Callable[[], None]) -> None:
        self._operator, self._study, self._check = operator, study, check
        self._head = (0, "0" * 64)
        self._last: Entry | None = None
        self.budget: Budget | None = None
        self.entries: list[Entry] = []

    @property
    def trains_again(self) -> bool:
        """Whether one more round of training fits the budget."""
        return self.budget is not None and self.budget.authorise().is_allowed

    def rounds(self) -> Iterator[RoundReport]:
        """Every round as soon as it is over; ends with the study.

        Raises:
            LedgerError: the coordinator's ledger does not hang together or breaks its own rules.
        """
        finished, queries = False, set[int]()
        while not finished:
            self._check()
            for entry in self._news():
                finished = finished or entry.kind == "finished"
                budget = self._apply(entry)
                if entry.kind == "asked" and entry.round is not None:
                    # A query has a number like a round, and releases no model.
                    queries.add(entry.round)
                if entry.kind in CHARGES and entry.round is not None and entry.round not in queries:
                    yield RoundReport(self._view(entry.round), tuple(budget.statements()))
            time.sleep(0 if finished else PAUSE_SECONDS)

    def _news(self) -> list[Entry]:
        page = self._operator.ledger(self._study, after=self._head[0])
        entries = [Entry.from_dict(entry.model_dump()) for entry in page.entries]
        self._head = verify_chain(entries, after=self._head)
        self.entries += entries
        return entries

    def _apply(self, entry: Entry) -> Budget:
        if entry.kind == "opened":
            self.budget = Budget.open(Plan.from_dict(entry.body["plan"]))
            return self.budget
        assert self.budget is not None, "the first entry of a ledger opens it"
        self.budget.apply(entry)
        return self.budget

    def _view(self, number: int) -> RoundView:
        """The round once it is released and measured, or abandoned."""
        end = time.monotonic() + METRICS_SECONDS
        while True:
            view = self._operator.send(round_view(self._study, number))
            over = view.state in ("abandoned", "stopped") or (view.state == "released" and view.metrics is not None)
            if over or time.monotonic() > end:
                return view
            self._check()
            time.sleep(PAUSE_SECONDS)
