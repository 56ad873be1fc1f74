"""Tables of OMOP CDM 5.4 as a database has them: in either case of letters, and in schemas that the hospital names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnClause, TableClause, column, false, inspect, select, table, text
from sqlalchemy.dialects.postgresql.base import PGInspector
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.sql.elements import ColumnElement

from record_sources.errors import SourceError
from record_sources.sql.connection import ReadOnlyDatabase
from record_sources.sql.faults import fault_of


@dataclass(frozen=True)
class CdmTable:
    """One table of the database, with its columns by their names in lower case."""

    name: str
    table: TableClause
    columns: Mapping[str, ColumnElement[Any]]

    def __getitem__(self, name: str) -> ColumnElement[Any]:
        """Return a column. Raises SourceError: the table lacks it."""
        if (column_of_name := self.columns.get(name)) is None:
            raise SourceError(f"table {self.name} has no column {name}, as OMOP CDM 5.4 has. Add it, or a view with it")
        return column_of_name


class CdmTables:
    """Finds the tables of one schema.

    Args:
        schema: None: the database's default.
        entry: where source.toml names the schema.
        purpose: what a missing table means, in words.
    """

    def __init__(self, database: ReadOnlyDatabase, schema: str | None, entry: str, purpose: str) -> None:
        self._database, self._schema = database, schema
        self._advice = f"{purpose}, or set {entry} in source.toml"
        try:
            inspector = inspect(database.connection)
            names: set[str] = {*inspector.get_table_names(schema), *inspector.get_view_names(schema)}
            # SQLAlchemy counts materialized views neither as tables nor as views.
            if database.kind in ("postgresql", "oracle"):
                names |= {*inspector.get_materialized_view_names(schema)}
            if isinstance(inspector, PGInspector):
                names |= {*inspector.get_foreign_table_names(schema)}
        except SQLAlchemyError as error:
            raise SourceError(fault_of(error)) from None
        self._names = defaultdict[str, list[str]](list)
        # Databases write names in lower or upper case, and OMOP says nothing of it.
        for name in sorted(names):
            self._names[name.lower()].append(name)

    def has(self, name: str) -> bool:
        """Return whether there is a table or view of this name."""
        return name in self._names

    def find(self, name: str) -> CdmTable:
        """Return a table or view. Raises SourceError: there is none, or several."""
        if name not in self._names:
            place = "" if self._schema is None else f" in schema {self._schema}"
            raise SourceError(f"the database has no table {name}{place}: {self._advice}")
        if len(self._names[name]) > 1:
            raise SourceError(
                f"the database has several tables {name} that differ in capitals alone: keep one, or {self._advice}"
            )
        source = table(self._names[name][0], schema=self._schema)
        with self._database.query(select(text("*")).select_from(source).where(false())) as query:
            names = query.columns
        # With their table, as tables have columns of one name.
        columns: list[ColumnClause[Any]] = [column(each) for each in names]
        source = table(self._names[name][0], *columns, schema=self._schema)
        return CdmTable(name, source, {each.name.lower(): each for each in source.columns})
