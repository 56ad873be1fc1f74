"""The columns that may be read under the site policy. Names are compared as a person reads them."""

from __future__ import annotations

import difflib
import logging
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TypeVar, cast

from client_sdk.errors import ConfigurationError
from client_sdk.guard.policy import QueryRules
from private_learning.records import Histories, Records, Table
from study_protocol.cells import cleaned
from study_protocol.study.training import Training

_LOG = logging.getLogger(__name__)
_UNSEEN = ("Cf", "Cc", "Zs", "Zl", "Zp", "Co", "Cn", "Cs")
_INPUT = "column."
AnyTable = TypeVar("AnyTable", bound=Table)


def as_read(name: str) -> str:
    """Return the form that two names share if a person takes them for one: without capitals, forms of a letter, spaces
    and
    unseen signs.

    >>> as_read("Post\\u200bcode ") == as_read("ＰＯＳＴＣＯＤＥ")
    True
    """
    composed = unicodedata.normalize("NFKC", cleaned(name))
    visible = "".join(sign for sign in composed if unicodedata.category(sign) not in _UNSEEN)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
    # What stood apart may now be one letter.
    return folded if folded == name else as_read(folded)


def denied(rules: QueryRules, names: Iterable[str]) -> list[str]:
    """Return those of the names that must not be read by `denied_columns`, sorted."""
    listed = {as_read(name) for name in rules.denied_columns}
    return sorted({name for name in names if as_read(name) in listed})


def not_allowed(rules: QueryRules, names: Iterable[str]) -> list[str]:
    """Those of the names that `allowed_columns` does not list, sorted. None where there is no such entry."""
    if rules.allowed_columns is None:
        return []
    listed = {as_read(name) for name in rules.allowed_columns}
    return sorted({name for name in names if as_read(name) not in listed})


def readable(records: Records, rules: QueryRules) -> Records:
    """Return the records without the columns that must not be read.

    A column is compared by its name, and by the local names that the hospital's mapping makes it of. Images and arrays
    have no columns but those of their list.

    Raises:
        ConfigurationError: a denied name is no column of these records, so that it would deny none. A list of labels
            has
            a column that must not be read: without it the labels would be others.
    """
    if not isinstance(records, Table):
        _require_labels(records.label_columns, rules)
        return records
    events: Mapping[str, Table] = records.events if isinstance(records, Histories) else {}
    tables = (records, *events.values())
    names = [name for table in tables for name in table.columns]
    _require_columns(rules.denied_columns, [*names, *(name for table in tables for name in _local_names(table))])
    hidden = {*denied(rules, names), *not_allowed(rules, names)}
    visible = _visible(records, rules, hidden)
    if isinstance(visible, Histories):
        return replace(visible, events={name: _visible(table, rules, hidden) for name, table in events.items()})
    return visible


def _visible(table: AnyTable, rules: QueryRules, hidden: Collection[str]) -> AnyTable:
    """Return the table without hidden columns, and without those that a mapping makes of a column that is hidden."""
    local_names = list(_local_names(table))
    local_hidden = {*denied(rules, local_names), *not_allowed(rules, local_names)}
    origins: Mapping[str, tuple[str, ...]] = {} if table.mapping is None else table.mapping.origins
    mapped = {name for name, local in origins.items() if not local_hidden.isdisjoint(local)} - {*hidden}
    for name in sorted(mapped):
        _LOG.warning(
            "the site policy (policy.toml): column %r cannot be read, because the mapping makes it of a local column "
            "that denied_columns names or allowed_columns does not",
            name,
        )
    names = {*hidden, *mapped}
    return cast("AnyTable", table.without_columns(names)) if names.intersection(table.columns) else table


def _local_names(table: Table) -> Iterator[str]:
    """Yield the hospital's own names of the columns that a mapping has renamed."""
    return chain.from_iterable(table.mapping.origins.values()) if table.mapping is not None else iter(())


def trained_columns(training: Training) -> list[str]:
    """Names that the study's task parameters may mean as columns: inputs, labels, and columns of events."""
    columns: list[str] = []
    for key, value in training.task_parameters.items():
        if key.startswith(_INPUT):
            columns.append(key.removeprefix(_INPUT))
        elif isinstance(value, str) and "=" in value:
            # "code=icd; time=day" of events.
            columns += [part.partition("=")[2] for part in value.split(";")]
        elif isinstance(value, str):
            columns += [value, *re.split("[|,;]", value)]
    return columns


def _require_labels(columns: Collection[str], rules: QueryRules) -> None:
    hidden = sorted({*denied(rules, columns), *not_allowed(rules, columns)})
    if hidden:
        raise ConfigurationError(
            "the site policy (policy.toml): [statistics] denied_columns or allowed_columns lets nothing read "
            f"{', '.join(map(repr, hidden))}, and the list of the labels (labels.csv) has it, where each column is a "
            "label: take the column out of the list, or correct the entry"
        )


def _require_columns(listed: Collection[str], names: Collection[str]) -> None:
    names_as_read = {as_read(name): name for name in names}
    for name in sorted(listed):
        if as_read(name) not in names_as_read:
            near = difflib.get_close_matches(as_read(name), names_as_read, n=3, cutoff=0.6)
            hint = f". Similar names: {', '.join(repr(names_as_read[each]) for each in near)}" if near else ""
            raise ConfigurationError(
                f"the site policy (policy.toml): [statistics] denied_columns names {name!r}, but these records have no "
                f"such column, so the entry denies nothing{hint}. Correct the entry or remove it. Records with other "
                "columns need a policy of their own (--policy FILE). The column that names the patients needs no "
                "entry, because no question may read it"
            )
