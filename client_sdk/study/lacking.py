"""Columns that this hospital's table lacks and that the study lets a site lack: what people here are told of them."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass

from client_sdk.api.client import Client
from client_sdk.guard.columns import as_read
from client_sdk.guard.policy import SitePolicy
from client_sdk.identity import Membership
from private_learning.records import Records, Table
from private_learning.tasks import Task
from private_learning.tasks.lacking import lacking_names
from private_learning.tasks.tables import TableTask
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.lacking import LackingColumns, columns_that_may_lack

# To look for what is like each of thousands would take hours.
_COMPARED = 10


@dataclass(frozen=True)
class LackingColumn:
    """A column that counts as missing for all patients of this hospital.

    near: a column of the table, with a name like it, that the study does not use. None: there is none
    """

    name: str
    near: str | None

    @property
    def in_words(self) -> str:
        """Return what a person here is told, in one or two sentences."""
        text = f"there is no column {self.name!r} to read, so it counts as missing for all patients here"
        if self.near is None:
            return f"{text}. The study allows this (site-may-lack)"
        return f"{text}. The table has {self.near!r}: is it meant? Then map it in columns.toml"


def lacking_columns(task: Task, records: Records) -> tuple[LackingColumn, ...]:
    """Return the columns that the records lack and that the study lets a site lack, in the order of the task's."""
    if not isinstance(task, TableTask) or not isinstance(records, Table):
        return ()
    lacking = lacking_names(task.columns, records.columns)
    used = {*task.target_columns, *(column.name for column in task.columns)}
    unused = {as_read(name): name for name in records.columns if name not in used} if lacking else {}
    return tuple(
        LackingColumn(name, _near(as_read(name), unused, compares=place < _COMPARED))
        for place, name in enumerate(lacking)
    )


def tell(client: Client, membership: Membership, policy: SitePolicy, settings: AnySettings, names: list[str]) -> None:
    """Tell the study which of its columns these records lack, if the policy allows it, or take back what was told.

    names: of the columns that lack
    """
    if not columns_that_may_lack(settings.as_json()):
        return
    study, me = membership.study, membership.client
    lacking = LackingColumns(columns=tuple(sorted(names)) if policy.tells_lacking_columns else None)
    columns_of = {hospital.client: hospital.columns for hospital in client.lacking_columns(study).hospitals}
    # A hospital that does not tell sends no word, unless an earlier one has to be taken back.
    if columns_of.get(me) != lacking.columns:
        client.put_lacking_columns(study, me, lacking)


def _near(name: str, unused: dict[str, str], *, compares: bool) -> str | None:
    close: Collection[str] = difflib.get_close_matches(name, unused, n=1) if compares and name not in unused else ()
    return unused.get(name) or next((unused[each] for each in close), None)
