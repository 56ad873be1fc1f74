"""Tables of OMOP CDM 5.4 as a database has them: in either case of letters, and in schemas that the hospital names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnClause, TableClause, column, false, inspect, select, table, text
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
            names: Sequence[str] = [*inspector.get_table_names(schema), *inspector.get_view_names(schema)]
        except SQLAlchemyError as error:
            raise SourceError(fault_of(error)) from None
        self._names = {name.lower(): name for name in names}

    def has(self, name: str) -> bool:
        """Return whether there is a table or view of this name."""
        return name in self._names

    def find(self, name: str) -> CdmTable:
        """Return a table or view. Raises SourceError: there is none."""
        if name not in self._names:
            place = "" if self._schema is None else f" in schema {self._schema}"
            raise SourceError(f"the database has no table {name}{place}: {self._advice}")
        source = table(self._names[name], schema=self._schema)
        with self._database.query(select(text("*")).select_from(source).where(false())) as query:
            names = query.columns
        # With their table, as tables have columns of one name.
        columns: list[ColumnClause[Any]] = [column(each) for each in names]
        source = table(self._names[name], *columns, schema=self._schema)
        return CdmTable(name, source, {each.name.lower(): each for each in source.columns})
