"""The cost of a query for the patients of a hospital: in the study's budget, and in the hospital's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from study_protocol.study.limit_words import SHARE
from study_protocol.wire.rounded import percent
from wardround.cli.shared.shared import number

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from study_protocol.study.limit_statement import LimitStatement
    from study_protocol.study.queries import Query

_OVER = ("answered", "failed")


def cost_in_words(client: Client, directory: Path, query: Query) -> list[str]:
    """Return ε before and after the query with all its steps, one line for each limit. Empty for a query that is over.

    The study's numbers are the coordinator's. Those of the hospital are computed from its own ledger.
    """
    if query.state in _OVER:
        return []
    own_lines = list(_own(directory, query))
    reasons = [
        "the two differ: the own budget counts all studies on these records, by this hospital's own rule and delta "
        "(wardround own-budget)"
    ]
    return [*_of_study(client, query), *own_lines, *(reasons if own_lines else [])]


def _of_study(client: Client, query: Query) -> Iterator[str]:
    from client_sdk.errors import Refused

    try:
        forecast = client.forecast_query(query.study, query.document)
        stated = {(limit.level, limit.definition): limit for limit in client.budget(query.study).limits}
    except Refused:
        # An older coordinator tells leads alone.
        return
    for limit in forecast.limits:
        after = "unbounded" if limit.after is None else number(limit.after)
        yield (
            f"cost for each patient in this study ({limit.level} {limit.definition}): ε {number(limit.before)} → "
            f"{after}, at most {limit.epsilon:g}{_of_plan(stated.get((limit.level, limit.definition)), query)}"
        )


def _of_plan(limit: LimitStatement | None, query: Query) -> str:
    """Return how much of the share for questions it takes, where the whole plan is stated from the first charge on."""
    progress = None if limit is None else limit.progress
    if progress is None or progress.steps is None or progress.squares is None or not progress.squares.allowed:
        return ""
    costs = query.document.costs()
    if costs[0].bears == "evaluated":
        return " (of the whole plan)"
    sums = (progress.squares.used, progress.squares.used + sum(cost.noise_multiplier**-2 for cost in costs))
    before, after = (percent(part / progress.squares.allowed) for part in sums)
    return f" (of the whole plan). Used of the {SHARE}: {before} → {after}"


def _own(directory: Path, query: Query) -> Iterator[str]:
    """Yield a line for each own limit on the records with which this hospital takes part."""
    from client_sdk.guard.charges import Charge, epsilon_spent
    from client_sdk.guard.ledger import HospitalLedger
    from client_sdk.guard.policy import SitePolicy
    from study_protocol.study.monitoring import window_in

    is_later, policy = window_in(query.document) is not None, SitePolicy.in_force(directory)
    new = [Charge.of_query(cost, later=is_later) for cost in query.document.costs()]
    for path in sorted((directory / "ledgers").glob("*.db")):
        with HospitalLedger.open(path, read_only=True) as ledger:
            if ledger.opened(query.study) is None:
                continue
            charges, limits = ledger.charges(), ledger.own_limits(policy)
        for limit in limits:
            before, after = epsilon_spent(charges, limit), epsilon_spent([*charges, *new], limit)
            yield (
                f"cost in this hospital's own budget of {path.stem} ({limit.level}): ε {number(before)} → "
                f"{number(after)}, at most {limit.epsilon:g}"
            )
