"""Windows of later patients as their answers say: what the control chart of a released model is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select

from server.db import rows
from server.db.query_tables import QueryRow
from server.db.row_checks import RowBroken
from server.db.session import Transaction
from server.services.coordinator import Coordinator
from server.services.queries.show import as_signed
from study_protocol.study.control_chart import WindowFigure, figures_of, threshold_of
from study_protocol.study.monitoring import MonitoringSettings
from study_protocol.study.queries import QueryDocument


@dataclass(frozen=True)
class Monitored:
    """The section of the settings, the newest query of each window, and the figures of those with an answer.

    queries    number of the window -> number and state of the query
    figures    number of the window -> measure -> its figure
    """

    monitoring: MonitoringSettings
    queries: Mapping[int, tuple[int, str]]
    figures: Mapping[int, Mapping[str, WindowFigure]]


def windows(coordinator: Coordinator, study: str) -> Monitored | None:
    """Return the windows of a study that were asked about, or None if it monitors no model.

    Raises Rejected `unknown-study`.
    """

    def work(tx: Transaction) -> Monitored | None:
        row = rows.find_study(tx, study)
        monitoring = rows.settings_of(row).monitoring
        if monitoring is None:
            return None
        statement = select(QueryRow).where(QueryRow.study_id == row.id).order_by(QueryRow.number)
        newest: dict[int, QueryRow] = {}
        for query in tx.session.scalars(statement):
            number = monitoring.window_of(QueryDocument.model_validate(query.document))
            # The newest one counts, as in `monitor show`: one before it has failed.
            if number is not None:
                newest[number] = query
        figures = {number: _figures(coordinator, monitoring, query) for number, query in newest.items()}
        return Monitored(
            monitoring=monitoring,
            queries={number: (query.number, query.state) for number, query in newest.items()},
            figures={number: each for number, each in figures.items() if each is not None},
        )

    return coordinator.database.read("read-windows", work)


def _figures(
    coordinator: Coordinator, monitoring: MonitoringSettings, query: QueryRow
) -> Mapping[str, WindowFigure] | None:
    if query.answer is None:
        return None
    try:
        answer = as_signed(coordinator, query).published.answer
    except RowBroken:
        # The page of that question says so. The list of all questions stays readable beside it.
        return None
    return figures_of(answer, threshold_of(monitoring))
