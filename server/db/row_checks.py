"""Checks of single rows: can these programs have written it? Every loaded row is checked, so that code meets no other.

The database's own types and CHECKs keep most of it. An owner of the database can switch them off, and SQLite takes any
value in any column.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from typing import Annotated, Any

from pydantic import Field, PositiveInt, TypeAdapter
from sqlalchemy import Boolean, CheckConstraint, Double, Integer, LargeBinary, String, event, func, select, text

from accounting.plan.report import report_from_dict
from server.db.query_tables import QueryRow
from server.db.session import Transaction
from server.db.tables import NAME, SHA256, Base, BudgetRow, ModelRow, RoundRow
from study_protocol.secure_sum.messages import SessionParameters, SumResult
from study_protocol.study.lacking import LackingName
from study_protocol.study.messages import Metrics, Refusal, Spent
from study_protocol.study.queries import Consent, QueryDocument, SignedAnswer
from study_protocol.wire.octets import EncodedKey, Signature
from study_protocol.wire.signing import SigningError, decode_public_key
from study_protocol.wire.tensors import spec_from_json
from study_protocol.wire.text import Text
from study_protocol.wire.values import NAME_PATTERN

Check = Callable[[Any], object]
# Exceptions of code that is handed a value which it cannot have written.
WRONG_VALUE = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
# Times that a message can say: up to the end of the year 9999. Clip norms, and norms on their scale, may be larger.
_LAST_SECOND, _NO_TIMES = 253_402_300_799.0, ("participants.distance", "models.clip_norm")
# Whole numbers that every reader of JSON reads alike.
_LARGEST = 2**53
_PATTERNS = {id(NAME): re.compile(NAME_PATTERN), id(SHA256): re.compile("[0-9a-f]{64}")}
_NAMES, _KEYS = TypeAdapter(list[str]), TypeAdapter(dict[str, EncodedKey])
# As text, and as octets.
_SIGNATURE = TypeAdapter[str](Signature)
_OCTETS = TypeAdapter[bytes](Annotated[bytes, Field(min_length=64, max_length=64)])
_TEXT, _SPENT = TypeAdapter[Any](Text), TypeAdapter(list[Spent])


class RowBroken(Exception):
    """A row holds what no program of ours wrote there. The text names table and column, never the value."""


# Checks inside a document or a text. The settings are parsed when they are asked for. Those of the budget are compared
# by their digests.
_INSIDE: Mapping[str, Check] = {
    "studies.title": _TEXT.validate_python,
    "studies.model_spec": spec_from_json,
    "api_keys.name": _TEXT.validate_python,
    "sessions.name": _TEXT.validate_python,
    "sessions.subject": _TEXT.validate_python,
    "sessions.groups": _NAMES.validate_python,
    "budgets.signature": _SIGNATURE.validate_python,
    "witnesses.public_key": lru_cache(maxsize=4096)(decode_public_key),
    "witnesses.signature": _SIGNATURE.validate_python,
    "clients.public_key": lru_cache(maxsize=4096)(decode_public_key),
    "clients.lacking_columns": TypeAdapter(list[LackingName]).validate_python,
    "events.kind": _TEXT.validate_python,
    "models.bytes": TypeAdapter(PositiveInt).validate_python,
    "models.metrics": Metrics.model_validate,
    "rounds.spent": _SPENT.validate_python,
    "queries.document": QueryDocument.model_validate,
    "queries.reason": _TEXT.validate_python,
    "queries.answer": SignedAnswer.model_validate,
    "consents.consent": Consent.model_validate,
    "participants.log_moments": report_from_dict,
    "participants.refusal_code": lambda code: Refusal(code=code),
    "participants.refusal_detail": _TEXT.validate_python,
    "secure_sum_sessions.signature": _OCTETS.validate_python,
    "secure_sum_sessions.parameters": lru_cache(maxsize=64)(SessionParameters.from_bytes),
    "secure_sum_sessions.roster": _KEYS.validate_python,
    "secure_sum_sessions.members": _KEYS.validate_python,
    "secure_sum_sessions.cohort": _NAMES.validate_python,
    "secure_sum_sessions.sharers": _NAMES.validate_python,
    "secure_sum_sessions.survivors": _NAMES.validate_python,
    "secure_sum_sessions.reported": report_from_dict,
    "secure_sum_sessions.result": SumResult.model_validate,
}


def require_sound(tx: Transaction, study_id: int) -> None:
    """Load every row of the study. Dear: for a study with which something is wrong.

    Raises:
        RowBroken: names the first table and column that hold something else, or lack what another row names.
    """
    for mapper in Base.registry.mappers:
        kind = mapper.class_
        if (owner := mapper.columns.get("study_id")) is None:
            continue
        # For the exceptions of loading. The objects are not kept.
        tx.session.scalars(select(kind).where(owner == study_id)).all()
        for rule in _rules(kind):
            broken = select(owner).where(owner == study_id, text(f"NOT ({rule.sqltext})")).limit(1)
            if tx.session.scalar(broken) is not None:
                raise RowBroken(f"{kind.__tablename__} holds what its own rules forbid: {rule.name}")
    under_way = select(func.count()).where(RoundRow.study_id == study_id, RoundRow.ended_at.is_(None))
    if tx.session.scalars(under_way).one() > 1:
        raise RowBroken("rounds has two that are under way")
    if tx.session.get(BudgetRow, study_id) is None:
        raise RowBroken("budgets has no row of the study")
    for column, kind, problem in (
        (RoundRow.base_version, ModelRow, "models lacks the model that a round began with"),
        (RoundRow.query, QueryRow, "queries lacks the query that a round asked"),
    ):
        numbers = select(column).where(RoundRow.study_id == study_id, column.is_not(None)).distinct()
        if any(tx.session.get(kind, (study_id, number)) is None for number in tx.session.scalars(numbers)):
            raise RowBroken(problem)


@event.listens_for(Base, "load", propagate=True)
def _loaded(row: Base, _: object) -> None:
    _require(row)


@event.listens_for(Base, "refresh", propagate=True)
def _refreshed(row: Base, _context: object, _names: object) -> None:
    _require(row)


def require_row(kind: type[Base], columns: Mapping[str, Any]) -> None:
    """Check the columns of one row that are there. Raises RowBroken."""
    for name, check in _checks(kind):
        # Of a row that is refreshed in part the rest is not here, which is no fault of what is stored.
        if name not in columns:
            continue
        try:
            check(columns[name])
        except (*WRONG_VALUE, SigningError) as error:
            raise RowBroken(f"{kind.__tablename__}.{name} holds what the coordinator never writes") from error


def _require(row: Base) -> None:
    columns = row.__dict__
    require_row(type(row), columns)
    if isinstance(row, QueryRow):
        _require_one_query(row, columns)


def _require_one_query(row: QueryRow, columns: Mapping[str, Any]) -> None:
    """Check that document, digest and answer are of one query, as far as they are loaded."""
    if {"document", "sha256"} <= set(columns) and QueryDocument.model_validate(row.document).digest() != row.sha256:
        raise RowBroken("queries.document is not what its digest says")
    if columns.get("answer") is not None and {"number", "sha256"} <= set(columns):
        stated = SignedAnswer.model_validate(row.answer).published
        if (stated.query, stated.sha256) != (row.number, row.sha256):
            raise RowBroken("queries.answer is another query's")


@cache
def _checks(kind: type[Base]) -> list[tuple[str, Check]]:
    words = {rule.info["column"]: rule.info["words"] for rule in _rules(kind) if rule.info}
    return [(column.name, _check(column, words.get(column.name))) for column in kind.__table__.columns]


def _rules(kind: type[Base]) -> list[CheckConstraint]:
    return [rule for rule in getattr(kind.__table__, "constraints", ()) if isinstance(rule, CheckConstraint)]


def _check(column: Any, words: tuple[str, ...] | None) -> Check:
    inside = _INSIDE.get(str(column))
    kind, pattern = column.type, _PATTERNS.get(id(column.type))
    if words is not None:
        check: Check = partial(_one_of, words)
    elif isinstance(kind, String):
        check = partial(_text, pattern)
    elif isinstance(kind, Boolean):
        check = partial(_of_type, bool)
    elif isinstance(kind, Integer):
        check = partial(_whole, 2**31 - 1 if type(kind) is Integer else _LARGEST)
    elif isinstance(kind, Double):
        check = partial(_number, sys.float_info.max if str(column) in _NO_TIMES else _LAST_SECOND)
    elif isinstance(kind, LargeBinary):
        check = partial(_of_type, bytes)
    else:
        check = _anything
    return partial(_check_value, column.nullable is True, check, inside or _anything)


def _check_value(nullable: bool, check: Check, inside: Check, value: Any) -> None:
    if value is None:
        if not nullable:
            raise ValueError("it is missing")
        return
    check(value)
    inside(value)


def _anything(_: Any) -> None:
    """Accept a document, whose inside is checked instead."""


def _of_type(kind: type, value: Any) -> None:
    if type(value) is not kind:
        raise TypeError("another type")


def _one_of(words: tuple[str, ...], value: Any) -> None:
    if value not in words:
        raise ValueError("none of its words")


def _text(pattern: re.Pattern[str] | None, value: Any) -> None:
    _of_type(str, value)
    if pattern is not None and pattern.fullmatch(value) is None:
        raise ValueError("not of its form")


def _whole(largest: int, value: Any) -> None:
    _of_type(int, value)
    if not 0 <= value <= largest:
        raise ValueError("out of range")


def _number(largest: float, value: Any) -> None:
    # NaN fails both comparisons.
    if type(value) not in (int, float) or not 0 <= value <= largest:
        raise ValueError("out of range")
