"""Tables from FHIR resources by ViewDefinitions of SQL on FHIR 2 (https://sql-on-fhir.org)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, product
from pathlib import Path
from typing import Any

from record_sources.errors import SourceError
from record_sources.fhir.files import read_resources
from record_sources.fhir.view_definitions import Select, ViewColumn, ViewDefinition
from record_sources.fhir.view_expressions import VARIABLES, Expression, constant_node, parse_expression, plain

Row = tuple[Any, ...]
_INTEGERS = {"integer", "integer64", "positiveInt", "unsignedInt"}


@dataclass(frozen=True, repr=False)
class _Column:
    name: str
    kind: str | None
    collection: bool
    path: Expression


@dataclass(frozen=True, repr=False)
class _Selection:
    """One selection with its parsed expressions. `names` are the columns of its rows, in the specification's order."""

    iteration: tuple[str, tuple[Expression, ...]] | None
    columns: tuple[_Column, ...]
    selects: tuple[_Selection, ...]
    unions: tuple[_Selection, ...]
    names: tuple[str, ...]
    # The row of an empty forEachOrNull.
    empty_row: Row


@dataclass(frozen=True, repr=False)
class FhirView:
    """A view that is ready to be used. Its expressions are parsed once.

    name      of the table. Empty: the definition has none
    resource  the type of resource that it reads
    columns   names of the columns, in the order of each row
    """

    name: str
    resource: str
    columns: tuple[str, ...]
    _wheres: tuple[Expression, ...]
    _selections: tuple[_Selection, ...]
    _constants: Mapping[str, Any]

    def rows(self, resource: Mapping[str, Any]) -> list[Row]:
        """Return the rows of one resource as parsed JSON, whose numbers with a decimal point may be Decimal.

        Cells are None, bool, int, float, str, or lists of these where a column has `collection`.

        Raises:
            SourceError: a column has several values without `collection`, a value that is not of the column's type, or
                an expression that does not fit. The text names the column and no value.
        """
        if resource.get("resourceType") != self.resource:
            return []
        scope = _Scope(resource, self._constants)
        for condition in self._wheres:
            answers = [plain(element) for element in condition.elements(resource, resource, self._constants)]
            if any(not isinstance(answer, bool) for answer in answers) or len(answers) > 1:
                raise SourceError(f"the condition {condition.text} is not true or false")
            if answers != [True]:
                return []
        parts = [list(scope.rows(selection, resource, 0)) for selection in self._selections]
        return [tuple(chain.from_iterable(combined)) for combined in product(*parts)]


def prepare_view(definition: ViewDefinition) -> FhirView:
    """Return a definition with its expressions parsed.

    Raises:
        SourceError: an expression is no FHIRPath, uses an unknown function or constant, two columns have one name, or
            the parts of a `unionAll` have different columns. The text names the column.
    """
    constants = {constant.name: constant_node(*constant.typed) for constant in definition.constant}
    variables = VARIABLES | constants.keys()
    wheres = tuple(parse_expression(condition.path, variables) for condition in definition.where)
    selections = tuple(_prepare(select, variables) for select in definition.select)
    names = tuple(chain.from_iterable(selection.names for selection in selections))
    twice = sorted({name for name in names if [each.lower() for each in names].count(name.lower()) > 1})
    if twice:
        raise SourceError(f"several columns have the name {twice[0]}. Give each column a name of its own")
    return FhirView(definition.name or "", definition.resource, names, wheres, selections, constants)


def view_rows(view: FhirView, files: Sequence[Path]) -> Iterator[tuple[str | None, list[Row]]]:
    """Yield the id and the rows of each resource that a view reads from NDJSON files, one resource at a time.

    Raises:
        SourceError: as `FhirView.rows` and `read_resources`, or a cell is a list, which no table can hold. The text
            names the view, the file and the number of the resource in it.
    """
    for file in files:
        for number, line in enumerate(read_resources([file]), start=1):
            if line.kind != view.resource:
                continue
            try:
                # Parsed again, since precision is part of FHIR's decimals.
                resource = json.loads(line.line, parse_float=Decimal)
                rows = view.rows(resource)
                _require_cells(view, rows)
            except SourceError as error:
                raise SourceError(f"view {view.name}, {file.name}, resource {number}: {error}") from None
            identifier = resource.get("id")
            yield (identifier if isinstance(identifier, str) else None), rows


def _require_cells(view: FhirView, rows: list[Row]) -> None:
    for row in rows:
        for name, cell in zip(view.columns, row, strict=True):
            if isinstance(cell, list):
                raise SourceError(
                    f"column {name} is a collection. A table holds one value in a cell: use forEach, first() or join()"
                )


def _prepare(select: Select, variables: frozenset[str]) -> _Selection:
    columns = tuple(_prepare_column(column, variables) for column in select.column)
    selects = tuple(_prepare(nested, variables) for nested in select.select)
    unions = tuple(_prepare(part, variables) for part in select.union_all)
    if len({union.names for union in unions}) > 1:
        raise SourceError("the parts of a unionAll have different columns or orders. Give them the same columns")
    children = (*selects, *unions[:1])
    names = (*(column.name for column in columns), *chain.from_iterable(child.names for child in children))
    empty_row = (*map(_cell_of_empty, columns), *chain.from_iterable(child.empty_row for child in children))
    return _Selection(_iteration(select, variables), columns, selects, unions, names, empty_row)


def _cell_of_empty(column: _Column) -> int | None:
    return 0 if column.path.text.strip() == "%rowIndex" else None


def _iteration(select: Select, variables: frozenset[str]) -> tuple[str, tuple[Expression, ...]] | None:
    for kind, stated in (
        ("forEach", select.for_each),
        ("forEachOrNull", select.for_each_or_null),
        ("repeat", select.repeat),
    ):
        if stated is not None:
            texts = [stated] if isinstance(stated, str) else stated
            return kind, tuple(parse_expression(text, variables) for text in texts)
    return None


def _prepare_column(column: ViewColumn, variables: frozenset[str]) -> _Column:
    try:
        path = parse_expression(column.path, variables)
    except SourceError as error:
        raise SourceError(f"column {column.name}: {error}") from None
    kind = column.type.rpartition("/")[2] if column.type else None
    return _Column(column.name, kind, column.collection, path)


@dataclass(frozen=True, repr=False)
class _Scope:
    resource: Mapping[str, Any]
    constants: Mapping[str, Any]

    def rows(self, selection: _Selection, focus: Any, index: int) -> Iterator[Row]:
        """Yield the rows of a selection, seen from an element. index: its place in the collection around it."""
        if selection.iteration is None:
            yield from self._rows_at(selection, focus, index)
            return
        kind, paths = selection.iteration
        elements = list(self._descend(paths, focus, index)) if kind == "repeat" else self._at(paths[0], focus, index)
        for place, element in enumerate(elements):
            yield from self._rows_at(selection, element, place)
        if not elements and kind == "forEachOrNull":
            yield selection.empty_row

    def _rows_at(self, selection: _Selection, focus: Any, index: int) -> Iterator[Row]:
        parts: list[list[Row]] = [[tuple(self._cell(column, focus, index) for column in selection.columns)]]
        parts += [list(self.rows(nested, focus, index)) for nested in selection.selects]
        if selection.unions:
            parts.append([row for part in selection.unions for row in self.rows(part, focus, index)])
        for combined in product(*parts):
            yield tuple(chain.from_iterable(combined))

    def _descend(self, paths: tuple[Expression, ...], focus: Any, index: int) -> Iterator[Any]:
        """Yield the elements below one, each before those below it."""
        for path in paths:
            for element in self._at(path, focus, index):
                yield element
                yield from self._descend(paths, element, index)

    def _at(self, path: Expression, focus: Any, index: int) -> list[Any]:
        return path.elements(focus, self.resource, {**self.constants, "rowIndex": index})

    def _cell(self, column: _Column, focus: Any, index: int) -> Any:
        try:
            cells = [_typed(plain(element), column.kind) for element in self._at(column.path, focus, index)]
        except SourceError as error:
            raise SourceError(f"column {column.name}: {error}") from None
        if column.collection:
            return cells
        if len(cells) > 1:
            raise SourceError(
                f"column {column.name} has {len(cells)} values, but not `collection`. Use first(), or forEach"
            )
        return cells[0] if cells else None


def _typed(content: Any, kind: str | None) -> Any:
    """Return a cell in the type of its column. Without a type, it keeps its own."""
    if isinstance(content, dict | list):
        raise SourceError("the path ends at an element that has parts. Name the part")
    if kind == "decimal" or (kind is None and isinstance(content, Decimal)):
        fits = isinstance(content, int | Decimal) and not isinstance(content, bool)
        converted = float(content) if fits else content
    else:
        converted = content
        fits = kind is None or type(content) is _class_of(kind)
    if not fits:
        raise SourceError(f"the path gives no {kind}, which is the column's type")
    return converted


def _class_of(kind: str) -> type:
    return bool if kind == "boolean" else int if kind in _INTEGERS else str
