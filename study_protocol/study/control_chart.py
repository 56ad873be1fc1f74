"""The control chart of a released model: its windows of later patients one after another, and the rule of the alarm.

Everything is read off published answers, so that it has no cost. A window's figure and its error, noise and sampling
together, are nearly normal. The statistic is the mean of the last two windows, weighted by their precision, over its
standard error. All statistics of a year stay within ±c with probability at least Π P(|Z| ≤ c), at any correlation
(Šidák 1967), which gives c. The errors hold wherever a calibrated model's predictions lie in their bins
(`research.monitoring.uneven`). The slope takes nine tenths of the false alarms, as it is what drifts unseen.
Calibration in the large has the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, Final

from study_protocol.queries.answer import DP_ERROR, ESTIMATE, HIGH, LOW, SAMPLING_ERROR, Answer
from study_protocol.queries.evaluation.binary import AREA, CURVE, THRESHOLD
from study_protocol.queries.evaluation.calibration import IN_THE_LARGE, NAME, SLOPE
from study_protocol.queries.evaluation.tables import MEASURE
from study_protocol.queries.groups import EVERYBODY
from study_protocol.study.monitoring import MonitoringSettings

NET_BENEFIT: Final = "net benefit"
MEASURES: Final = (SLOPE, IN_THE_LARGE, AREA, NET_BENEFIT)
# Share of the false alarms that each measure with an alarm has.
SHARES: Final[Mapping[str, float]] = MappingProxyType({SLOPE: 0.9, IN_THE_LARGE: 0.1})
_CALIBRATED: Final[Mapping[str, float]] = MappingProxyType({SLOPE: 1.0, IN_THE_LARGE: 0.0})


@dataclass(frozen=True)
class WindowFigure:
    """One measure of one window. error: of noise and sampling together, None where there is no estimate."""

    estimate: float | None
    error: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Alarm:
    """A statistic beyond its limit.

    window     the number of the last of the windows that it rests on
    statistic  standard errors by which the mean of the last two windows is off
    limit      c
    """

    measure: str
    window: int
    statistic: float
    limit: float

    @property
    def in_words(self) -> str:
        side = "above" if self.statistic > 0 else "below"
        return (
            f"window {self.window}: the {self.measure} is {abs(self.statistic):.2f} standard errors {side} its "
            f"reference (limit {self.limit:.2f})"
        )


def threshold_of(monitoring: MonitoringSettings) -> float:
    """Return the threshold at which net benefit is drawn: the inner edge nearest to the question's centre."""
    return min(monitoring.question.edges, key=lambda end: abs(end - monitoring.question.centre))


def figures_of(answer: Answer, threshold: float) -> dict[str, WindowFigure]:
    """Return the measures of a window's answer, about all patients. threshold: of net benefit."""
    figures: dict[str, WindowFigure] = {}
    for table in answer.tables:
        for values in table.rows:
            row = dict(zip(table.columns, values, strict=True))
            if row.get("group") != EVERYBODY:
                continue
            if table.name == "net-benefit" and row[THRESHOLD] == threshold and row[CURVE] == "whom the model calls":
                figures[NET_BENEFIT] = _figure(row)
            elif table.name in (NAME, "performance") and row[MEASURE] in MEASURES:
                figures[str(row[MEASURE])] = _figure(row)
    return figures


def limit_of(monitoring: MonitoringSettings, measure: str) -> float:
    """Return c of a measure: the most standard errors that its statistic may be off without an alarm, rounded up."""
    share = monitoring.false_alarms * SHARES[measure]
    # (1 - share)^(1/n) of the probability for each of n statistics in a year, on both sides.
    each = -math.expm1(math.log1p(-share) / monitoring.windows_a_year)
    return NormalDist().inv_cdf(1 - each / 2) * (1 + 1e-12)


def reference_of(
    monitoring: MonitoringSettings, windows: Mapping[int, Mapping[str, WindowFigure]], measure: str
) -> float | None:
    """Return what later windows are held against. None: the measure has no alarm, or window 1 has no figure."""
    if measure not in SHARES:
        return None
    if monitoring.reference == "calibrated":
        return _CALIBRATED[measure]
    figures = _known_figures(windows, measure)
    return figures[0][1] if figures and figures[0][0] == 1 else None


def statistics_of(
    monitoring: MonitoringSettings, windows: Mapping[int, Mapping[str, WindowFigure]], measure: str
) -> dict[int, float]:
    """Return the statistic of each window that has a figure of this measure, by its number."""
    figures = _known_figures(windows, measure)
    # Slope 1 and intercept 0 are exact, so that they add no error.
    reference, error = _CALIBRATED[measure], 0.0
    if monitoring.reference == "first-window":
        if not figures or figures[0][0] != 1:
            return {}
        (_, reference, error), *figures = figures
    by_window: dict[int, float] = {}
    for place, (number, _, _) in enumerate(figures):
        pair = figures[max(place - 1, 0) : place + 1]
        precision = sum(1 / each**2 for _, _, each in pair)
        mean = sum((estimate - reference) / each**2 for _, estimate, each in pair) / precision
        # The reference's own error is in every difference alike.
        by_window[number] = mean / math.sqrt(1 / precision + error**2)
    return by_window


def _known_figures(windows: Mapping[int, Mapping[str, WindowFigure]], measure: str) -> list[tuple[int, float, float]]:
    """Return number, estimate and error of every window that has both, in order."""
    figures: list[tuple[int, float, float]] = []
    for number in sorted(windows):
        figure = windows[number].get(measure)
        if figure is not None and figure.estimate is not None and figure.error:
            figures.append((number, figure.estimate, figure.error))
    return figures


def alarms_of(monitoring: MonitoringSettings, windows: Mapping[int, Mapping[str, WindowFigure]]) -> list[Alarm]:
    """Return every alarm, in the order of the windows. windows: number -> measure -> its figure."""
    alarms = [
        Alarm(measure, number, statistic, limit_of(monitoring, measure))
        for measure in SHARES
        for number, statistic in statistics_of(monitoring, windows, measure).items()
    ]
    beyond = [alarm for alarm in alarms if abs(alarm.statistic) > alarm.limit]
    return sorted(beyond, key=lambda alarm: (alarm.window, MEASURES.index(alarm.measure)))


def untold(windows: Mapping[int, Mapping[str, WindowFigure]]) -> list[int]:
    """Return the windows that were answered and have no slope: no alarm can come of them."""
    with_slope = {number for number, _, _ in _known_figures(windows, SLOPE)}
    return sorted(set(windows) - with_slope)


def rule_in_words(monitoring: MonitoringSettings) -> str:
    """Return the rule of the alarm in one sentence."""
    slope, large = (limit_of(monitoring, measure) for measure in SHARES)
    against = "slope 1 and intercept 0" if monitoring.reference == "calibrated" else "the first window"
    # The errors are those of a calibrated model, whatever the chart is held against.
    condition = "" if monitoring.reference == "calibrated" else ", if the model was calibrated in the first window"
    return (
        f"Alarm: the mean of the last two windows is more than {slope:.2f} standard errors (slope) or {large:.2f} (in "
        f"the large) away from {against}. False alarms: at most {100 * monitoring.false_alarms:g} % a year{condition}."
    )


def _figure(row: Mapping[str, Any]) -> WindowFigure:
    noise, sampling = row[DP_ERROR], row[SAMPLING_ERROR]
    error = None if noise is None or sampling is None else math.hypot(float(noise), float(sampling))
    return WindowFigure(row[ESTIMATE], error, row[LOW], row[HIGH])


def words_of(figures: Mapping[str, WindowFigure]) -> list[str]:
    """Return each of `MEASURES` as "0.98 (0.85 to 1.11)", or a dash where there is none."""
    return [_in_words(figures.get(measure)) for measure in MEASURES]


def _in_words(figure: WindowFigure | None) -> str:
    if figure is None or figure.estimate is None:
        return "–"
    ends = "" if figure.low is None or figure.high is None else f" ({figure.low:.3g} to {figure.high:.3g})"
    return f"{figure.estimate:.3g}{ends}"
