"""How far a query has come, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from study_protocol.study.reasons import FOR_GOOD, in_words

if TYPE_CHECKING:
    from study_protocol.study.queries import Query


def title_of(query: Query) -> str:
    """Return the query's title, or its question if it has none."""
    question = query.document.question
    return question.title or question.in_words()


def state_in_words(query: Query) -> str:
    """Return the state of the query in words: the reason for waiting, or the failure and what to do."""
    match query.state:
        case "waiting":
            refused = f", {query.refused} {'says' if query.refused == 1 else 'say'} no" if query.refused else ""
            until = query.reserved_until
            reservation = "" if until is None else f". Its cost is kept until {until.astimezone():%Y-%m-%d %H:%M}"
            return f"waiting: {query.allowed} of at least {query.needed} hospitals say yes{refused}{reservation}"
        case "asked":
            return f"asked in round {query.round}: hospitals compute"
        case "answered":
            return "answered"
        case "failed":
            advice = "" if query.reason in FOR_GOOD else " Asking again starts a new attempt."
            return f"failed: {in_words(query.reason or 'unknown')}{advice}"


def refusals_of(query: Query) -> list[str]:
    """Return the refusals with their reasons, one line each, empty for readers who may not see them."""
    refusals = [(answer.client, answer.consent) for answer in query.consents or [] if not answer.consent.allowed]
    return [f"{client}: {consent.detail or consent.code or 'no reason given'}" for client, consent in refusals]
