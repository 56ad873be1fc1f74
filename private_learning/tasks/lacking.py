"""Columns that a study allows a site to lack: `site-may-lack`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from private_learning.records import Table
from private_learning.tasks.declared_columns import DeclaredColumn

AnyTable = TypeVar("AnyTable", bound=Table)


def with_lacking(columns: Collection[DeclaredColumn], table: AnyTable) -> AnyTable:
    """Return the table with a column of empty cells for each of `lacking_names`."""
    return table.with_empty_columns(lacking_names(columns, table.columns))


def lacking_names(columns: Collection[DeclaredColumn], names: Collection[str]) -> list[str]:
    """Return the declared columns that are none of the names of a table, and that a site may lack."""
    return [column.name for column in columns if column.may_lack and column.name not in names]
