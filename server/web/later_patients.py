"""The control chart of a released model as page data: windows of later patients, their figures and alarms."""

from __future__ import annotations

from datetime import date

from pydantic import Field

from server.services.queries.windows import Monitored
from study_protocol.study.control_chart import (
    MEASURES,
    NET_BENEFIT,
    WindowFigure,
    alarms_of,
    reference_of,
    rule_in_words,
    threshold_of,
)
from study_protocol.wire.text import Text
from study_protocol.wire.values import Finite, Message


class ShownFigure(Message):
    """A measure of a window."""

    estimate: Finite | None = Field(description="null: it cannot be computed")
    low: Finite | None = Field(description="lower end of the 95 % interval, noise and sampling together")
    high: Finite | None = Field(description="upper end")


class ShownWindow(Message):
    window: int = Field(ge=1, description="its number")
    first_day: date = Field(description="the first day of its patients' first records")
    end: date = Field(description="the day after the last one")
    due_on: date = Field(description="the first day on which it may be asked about")
    query: int | None = Field(description="the newest query about it. null: it was not asked about")
    state: Text = Field(description="of that query, or `not asked`")
    figures: list[ShownFigure | None] = Field(description="in the order of the measures. null: no answer holds it")


class ShownMeasure(Message):
    name: Text = Field(description="what is measured")
    reference: Finite | None = Field(description="what windows are held against. null: it has no alarm, or none yet")


class LaterPatients(Message):
    """The chart that `wardround monitor show` prints, from the same answers."""

    measures: list[ShownMeasure] = Field(description="the columns of the chart")
    windows: list[ShownWindow] = Field(description="all windows of the settings, also those to come")
    rule: str = Field(description="when there is an alarm, in words")
    alarms: list[str] = Field(description="each alarm in words, in the order of the windows")


def later_patients(monitored: Monitored) -> LaterPatients:
    """Return the chart of a study that monitors its model."""
    monitoring, figures = monitored.monitoring, monitored.figures
    return LaterPatients(
        measures=[
            ShownMeasure(name=_title(monitored, measure), reference=reference_of(monitoring, figures, measure))
            for measure in MEASURES
        ],
        # Also those to come: a reader wants to know when the next number is due.
        windows=[_window(monitored, number) for number in range(1, monitoring.windows + 1)],
        rule=rule_in_words(monitoring),
        alarms=[alarm.in_words for alarm in alarms_of(monitoring, figures)],
    )


def _title(monitored: Monitored, measure: str) -> str:
    # Net benefit means nothing without the threshold at which a patient is called.
    return f"{measure} at {threshold_of(monitored.monitoring):g}" if measure == NET_BENEFIT else measure


def _window(monitored: Monitored, number: int) -> ShownWindow:
    days = monitored.monitoring.window(number)
    query, state = monitored.queries.get(number, (None, "not asked"))
    figures = monitored.figures.get(number, {})
    return ShownWindow(
        window=number,
        first_day=days.first_day,
        end=days.end,
        due_on=monitored.monitoring.due_on(number),
        query=query,
        state=state,
        figures=[_figure(figures.get(measure)) for measure in MEASURES],
    )


def _figure(figure: WindowFigure | None) -> ShownFigure | None:
    if figure is None:
        return None
    return ShownFigure(estimate=figure.estimate, low=figure.low, high=figure.high)
