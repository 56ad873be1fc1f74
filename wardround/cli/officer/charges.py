"""The charges of rounds and queries in one table: what each has charged to every limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from study_protocol.wire.rounded import percent
from wardround.cli.shared.shared import number, say, since, table

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from study_protocol.study.messages import BudgetStatement, RoundView
    from study_protocol.study.queries import Query

NEWEST = 20


@dataclass(frozen=True)
class RoundCharge:
    """A round that is charged.

    title   of the query that it answers. None: a round of training
    before  for each limit, the amount spent before this round. None: the round before is not known
    used    for each limit, the share of μ² that the query uses up, with questions alone. None: it is charged in ε
    """

    view: RoundView
    title: str | None
    before: tuple[float, ...] | None
    used: tuple[float | None, ...]

    @property
    def title_in_words(self) -> str:
        """Return the round or the query in a few words."""
        if self.view.query is None:
            return "round of training"
        return f"query {self.view.query}: {self.title}" if self.title else f"query {self.view.query}"

    def cells(self) -> list[str]:
        """Return, for each limit, ε afterwards with the increase, or the share of μ² that was used up."""
        after = _spent(self.view)
        pasts = self.before or (None,) * len(after)
        return [_cell(*each) for each in zip(after, pasts, self.used, strict=True)]

    def as_json(self) -> dict[str, Any]:
        """Return the charge as JSON."""
        spent = None if self.view.spent is None else [limit.model_dump(mode="json") for limit in self.view.spent]
        about = {"round": self.view.round, "query": self.view.query, "title": self.title, "state": self.view.state}
        return about | {"ended_at": self.view.model_dump(mode="json")["ended_at"], "spent": spent}


def read_charges(client: Client, study: str, statement: BudgetStatement, *, everything: bool) -> list[RoundCharge]:
    """Return the newest charges, or all of them, in order."""
    from client_sdk.api.pages import all_rounds

    # One more than is shown: the first shown charge begins with what this one left.
    begins = 0 if everything else max(0, statement.round - NEWEST - 1)
    views = all_rounds(client, study, after=begins)
    queries = _queries(client, study, views)
    allowances = [limit.used and limit.used[1] for limit in statement.limits if limit.epsilon is not None]
    charged = [view for view in views if view.spent is not None]
    # The amount spent before the first round is 0.
    pasts = [None if begins else (0.0,) * len(allowances), *map(_spent, charged)]
    charges = [_charge(view, past, queries, allowances) for view, past in zip(charged, pasts, strict=False)]
    return charges if everything else charges[-NEWEST:]


def show_charges(charges: list[RoundCharge], *, everything: bool, rounds: int) -> None:
    """Print the table of charges, if there are any."""
    if not charges:
        return
    limits = [
        f"{'ε' if used is None else 'μ² used'} {entry.level} {entry.definition}"
        for entry, used in zip(charges[0].view.spent or [], charges[0].used, strict=True)
    ]
    rows = [
        [
            str(entry.view.round),
            entry.title_in_words,
            _state(entry.view),
            since(entry.view.ended_at or entry.view.started_at),
            *entry.cells(),
        ]
        for entry in charges
    ]
    table(
        "Charges: ε afterwards (and the increase), or the share of μ² that was used up",
        ["round", "what", "state", "when", *limits],
        rows,
    )
    if not everything and rounds > len(charges):
        say(f"these are the newest {len(charges)} charges. --all shows every charge")


def _queries(client: Client, study: str, views: list[RoundView]) -> dict[int, Query]:
    from client_sdk.api.pages import all_queries

    if all(view.query is None for view in views):
        return {}
    return {query.number: query for query in all_queries(client, study)}


def _charge(
    view: RoundView, past: tuple[float, ...] | None, queries: Mapping[int, Query], allowances: Sequence[float | None]
) -> RoundCharge:
    from study_protocol.study.query_words import title_of

    query = None if view.query is None else queries.get(view.query)
    used = tuple(None if allowance is None else _share(query, allowance) for allowance in allowances)
    return RoundCharge(view, None if query is None else title_of(query), past, used)


def _spent(view: RoundView) -> tuple[float, ...]:
    return tuple(limit.spent for limit in view.spent or [])


def _share(query: Query | None, allowance: float) -> float:
    """Return Δ²/s² of a query as a share of the allowance of all queries."""
    if query is None or not allowance > 0:
        return math.inf
    cost = query.document.cost()
    return (cost.sensitivity / cost.noise_std) ** 2 / allowance


def _cell(after: float, before: float | None, used: float | None) -> str:
    if used is not None:
        return percent(used) if math.isfinite(used) else "unknown"
    # Rounded up, like every amount spent.
    return number(after) if before is None else f"{number(after)} (+{number(max(0.0, after - before))})"


def _state(view: RoundView) -> str:
    return view.state if view.reason is None else f"{view.state}: {view.reason}"
