"""The charges of rounds and queries in one table: what each has charged to every limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from study_protocol.study.limit_words import NOT_CHARGED, SHARE
from study_protocol.wire.rounded import percent
from wardround.cli.shared.shared import number, say, since, table

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from study_protocol.study.limit_statement import LimitProgress
    from study_protocol.study.messages import BudgetStatement, RoundView
    from study_protocol.study.queries import Query

NEWEST = 20


class LimitCharged(NamedTuple):
    """The charge of one round to one limit. Steps and squares are counted with some limits."""

    epsilon: float = 0.0
    steps: int | None = None
    squares: float | None = None


@dataclass(frozen=True)
class RoundCharge:
    """A round that is charged.

    title     of the query that it answers. None: a round of training
    before    for each limit, the amount charged before this round. None: the round before is not known
    progress  for each limit, how far it is used up. None: it is kept in ε
    used      for each limit, the share of μ² that the query uses up, with questions alone. None: otherwise
    """

    view: RoundView
    title: str | None
    before: tuple[LimitCharged, ...] | None
    progress: tuple[LimitProgress | None, ...]
    used: tuple[float | None, ...]

    @property
    def title_in_words(self) -> str:
        """Return the round or the query in a few words."""
        if self.view.query is None:
            return "round of training"
        return f"query {self.view.query}: {self.title}" if self.title else f"query {self.view.query}"

    def cells(self) -> list[str]:
        """Return, for each limit, ε afterwards with the increase, or how far it is used up then."""
        after = _charged(self.view)
        pasts = self.before or (None,) * len(after)
        is_abandoned = self.view.state == "abandoned"
        return [_cell(*each, is_abandoned) for each in zip(after, pasts, self.progress, self.used, strict=True)]

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
    progress = tuple(limit.counted for limit in statement.limits if limit.epsilon is not None)
    charged = [view for view in views if view.spent is not None]
    pasts = [None if begins else tuple(map(_nothing, progress)), *map(_charged, charged)]
    charges = [_charge(view, past, queries, progress) for view, past in zip(charged, pasts, strict=False)]
    return charges if everything else charges[-NEWEST:]


def show_charges(charges: list[RoundCharge], *, everything: bool, rounds: int) -> None:
    """Print the table of charges, if there are any."""
    if not charges:
        return
    limits = [
        f"{_unit(progress)} {entry.level} {entry.definition}"
        for entry, progress in zip(charges[0].view.spent or [], charges[0].progress, strict=True)
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
        "Charges: ε afterwards (and the increase), or how far the plan or μ² was used up",
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
    view: RoundView,
    past: tuple[LimitCharged, ...] | None,
    queries: Mapping[int, Query],
    progress: tuple[LimitProgress | None, ...],
) -> RoundCharge:
    from study_protocol.study.query_words import title_of

    query = None if view.query is None else queries.get(view.query)
    used = tuple(
        _share(query, part.squares.allowed) if part is not None and part.squares is not None else None
        for part in progress
    )
    return RoundCharge(view, None if query is None else title_of(query), past, progress, used)


def _charged(view: RoundView) -> tuple[LimitCharged, ...]:
    return tuple(LimitCharged(limit.spent, limit.steps, limit.squares) for limit in view.spent or [])


def _nothing(progress: LimitProgress | None) -> LimitCharged:
    """Return what a limit was charged before the first round."""
    if progress is None:
        return LimitCharged()
    return LimitCharged(0.0, None if progress.steps is None else 0, None if progress.squares is None else 0.0)


def _unit(progress: LimitProgress | None) -> str:
    if progress is None:
        return "ε"
    return "μ² used" if progress.steps is None else "plan"


def _share(query: Query | None, allowance: float) -> float:
    """Return Δ²/s² of a query as a share of the allowance of all queries."""
    if query is None or not allowance > 0:
        return math.inf
    cost = query.document.cost()
    return (cost.sensitivity / cost.noise_std) ** 2 / allowance


def _cell(
    after: LimitCharged,
    before: LimitCharged | None,
    progress: LimitProgress | None,
    used: float | None,
    is_abandoned: bool,
) -> str:
    is_counted = progress is not None and (after.steps, after.squares) != (None, None)
    # With questions alone rounds do not say what was used by then.
    if is_abandoned and after == before and (progress is None or is_counted):
        return NOT_CHARGED
    if progress is None:
        return _epsilon_cell(after, before)
    if is_counted:
        return _counted_cell(after, progress)
    return percent(used) if used is not None and math.isfinite(used) else "unknown"


def _epsilon_cell(after: LimitCharged, before: LimitCharged | None) -> str:
    # Rounded up, like every amount spent.
    increase = "" if before is None else f" (+{number(max(0.0, after.epsilon - before.epsilon))})"
    return f"{number(after.epsilon)}{increase}"


def _counted_cell(after: LimitCharged, progress: LimitProgress) -> str:
    steps = [] if after.steps is None else [f"step {after.steps}"]
    if after.squares is None or progress.squares is None:
        return "".join(steps)
    share = percent(min(1.0, after.squares / progress.squares.allowed))
    return ", ".join([*steps, f"{SHARE} {share}" if steps else f"{share} so far"])


def _state(view: RoundView) -> str:
    return view.state if view.reason is None else f"{view.state}: {view.reason}"
