"""A study's ledger written by hand: entries that say everything a real coordinator's say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from accounting.budget.bodies import Standing
from accounting.budget.budget import Budget
from accounting.budget.ledger import Entry, append, digest
from accounting.plan.statistics import AnyPlan
from study_protocol.study.messages import LedgerEntry


def standing(budget: Budget, settings_sha256: str, roster_sha256: str = "a" * 64, members: int = 3) -> dict[str, Any]:
    """How a study with this budget stands, as an entry's body says it."""
    shown = {"limits": budget.statements(), "percentiles": budget.percentiles()}
    return Standing(
        settings_sha256=settings_sha256,
        roster_sha256=roster_sha256,
        members=members,
        state_sha256=digest(budget.state()),
        statement_sha256=digest(shown),
        can_continue=budget.can_continue,
    ).to_dict()


def opened(plan: AnyPlan, settings: Mapping[str, Any] | None = None, study: str = "s") -> list[Entry]:
    """A ledger of one entry. Without `settings`: of a study whose plan was written down, not derived from settings."""
    given = {} if settings is None else dict(settings)
    body = {"study": study, "settings": given, "plan": plan.to_dict(), **standing(Budget(plan), digest(given))}
    return [append(None, "opened", None, body)]


def after(entries: Sequence[Entry], kind: Any, round: int | None = None, **event: Any) -> Entry:
    """The next entry, with this event. How the study stands is said as it was: replaying does not compare it."""
    before = {name: entries[-1].body[name] for name in standing_names()}
    return append(entries[-1], kind, round, {**event, **before})


def standing_names() -> list[str]:
    """The fields that every body has."""
    return list(Standing.__dataclass_fields__)


def kinds_in(entries: Iterable[Entry | LedgerEntry]) -> list[str]:
    """What happened to rounds, in order, without those who came, left and acted meanwhile and without files."""
    return [entry.kind for entry in entries if entry.kind not in ("roster", "operated", "released")]
