"""What all tables are made of: the base class, types of columns, and common CHECKs and indexes."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

from sqlalchemy import JSON, BigInteger, CheckConstraint, Double, Index, MetaData, String, Text, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# In hexadecimal, and the longest name of a hospital or a study.
SHA256 = String(64)
NAME = String(63)
# Grows with the clients, and is loaded when it is asked for.
LARGE: dict[str, Any] = {"deferred": True, "deferred_group": "large"}


class Base(DeclarativeBase):
    metadata = MetaData(
        # SQLite would leave constraints unnamed and PostgreSQL name them itself: a migration has to find them on both.
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar = {
        # None is SQL's NULL, not JSON's `null`: CHECKs ask whether there is a value.
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON(none_as_null=True),
        float: Double,
        int: BigInteger,
        str: Text,
    }

    written_by: Mapped[str] = mapped_column(
        String(64), comment="the transaction that last wrote this row", sort_order=99
    )


def one_of(column: str, words: Any) -> CheckConstraint:
    """Require that the column holds one of the words of a `Literal`."""
    listed = ", ".join(f"'{word}'" for word in get_args(words))
    return CheckConstraint(f"{column} IN ({listed})", name=column, info={"column": column, "words": get_args(words)})


def hexadecimal(column: str, name: str) -> CheckConstraint:
    """Require that the column is as long as a SHA-256 in hexadecimal."""
    return CheckConstraint(f"length({column}) = 64", name=name)


def index_where(condition: str, name: str, *columns: str, unique: bool = True) -> Index:
    """Return an index over the rows that fulfil the condition."""
    clause = text(condition)
    return Index(name, *columns, unique=unique, sqlite_where=clause, postgresql_where=clause)
