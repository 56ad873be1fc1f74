"""The report of `wardround plan`: tables and notes about a forecast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wardround.cli.shared.shared import number, say, table

if TYPE_CHECKING:
    from accounting.budget.forecast import Forecast, LimitForecast
    from accounting.plan.plan import Plan
    from accounting.plan.signal import SignalToNoise
    from study_protocol.study.settings import StudySettings
    from study_protocol.study.training import Training


_RULES = {"fixed-plan": "the whole plan", "gaussian-filter": "a sum of squares", "renyi-order": "an order"}


def show_forecast(outlook: Forecast) -> None:
    from accounting.budget.accounts.base import RUNNING

    plan = outlook.plan
    ends = {
        "max-steps-reached": "all steps of max_steps have been taken",
        "budget-exhausted": f"the next round could pass {_stopping_limits(outlook)}",
    }
    data = "certain" if outlook.rounds == outlook.at_most_rounds else f"at least, and at most {outlook.at_most_rounds}"
    noise = f"multiplier {plan.noise_multiplier:g} at clip norm {plan.clip_norm:g}"
    together = "in shares of" if plan.rules.divides_noise else "of"
    rows = [
        ["rounds", f"{outlook.rounds} of {plan.rounds} within max_steps ({data})"],
        ["noised steps", f"{outlook.rounds * plan.steps_per_round}, {plan.steps_per_round} in a round"],
        ["then", ends[outlook.reason]],
        [
            "noise",
            noise if plan.honest_survivors == 1 else f"{noise}, {together} {plan.honest_survivors} honest hospitals",
        ],
        *_by_stage(plan),
    ]
    table("Plan of the study, if no round is abandoned", ["", ""], rows)
    columns = ["limit", "after these rounds", "rounds by itself", "first round", "each further one", "kept by"]
    table(
        "Privacy loss ε in the worst case",
        columns,
        [row for limit_forecast in outlook.limits for row in _rows(limit_forecast)],
    )
    if any(limit_forecast.reports for limit_forecast in outlook.limits):
        say(f"* {RUNNING}. No rule decides by it.")
    for line in _scope_of_limits(outlook):
        say(line)


def _scope_of_limits(outlook: Forecast) -> list[str]:
    """Return why ε is more than that of the rounds, where a limit is kept by counting."""
    queries, rules = outlook.plan.queries, {each.limit.enforcement for each in outlook.limits}
    lines: list[str] = []
    if "gaussian-filter" in rules:
        lines.append("A limit that is kept by a sum of squares is stated whole, from the first round on.")
    if queries is not None and rules != {"fixed-plan"}:
        lines.append("Rounds are counted without questions. Each question on all patients leaves room for fewer.")
    if queries is None or "fixed-plan" not in rules:
        return lines
    if queries.share is not None:
        lines.append(
            f"ε of the whole plan counts all of its share for questions (statistics.share = {queries.share:g}), "
            "whether they are asked or not."
        )
    if queries.evaluation is not None:
        lines.append(
            "Patients who are set aside may lose as much as the limit by evaluations, which are no part of the plan: "
            "so ε is the limit."
        )
    return lines


def _by_stage(plan: Plan) -> list[list[str]]:
    if plan.noise_schedule is None:
        return []
    multipliers = ", ".join(
        f"{stage.rounds} rounds at {plan.noise_of(place):g}" for place, stage in enumerate(plan.stages)
    )
    return [["noise by round", f"{multipliers}. A round that is abandoned uses up its place"]]


def _rows(limit_forecast: LimitForecast) -> list[list[str]]:
    from study_protocol.wire.rounded import percent

    limit = limit_forecast.limit
    bayesian = limit.definition == "bayesian"
    name = f"{limit.level} {limit.definition}: ε ≤ {limit.epsilon:g} at δ = {limit.delta:g}"
    worst = f"{number(limit_forecast.enforced)}{' at most' if bayesian else ''}"
    first, rule = number(limit_forecast.first_round), _RULES[limit.enforcement or "renyi-order"]
    if limit_forecast.order is not None:
        first = f"{first} (fixed {number(limit_forecast.fixed_term)})"
        rule = f"order {limit_forecast.order:g} (at least {limit_forecast.least_order:g})"
    # Without such a number the rounds differ, or there is only one.
    varies = "varies" if limit_forecast.rounds > 1 else ""
    further_epsilon = varies if math.isnan(limit_forecast.further_round) else number(limit_forecast.further_round)
    rows = [[name, worst, str(limit_forecast.rounds), first, further_epsilon, rule]]
    rows += [[f"  {name} *", number(stated.epsilon), "", "", "", ""] for name, stated in limit_forecast.reports]
    if limit_forecast.guess is not None:
        rows.append(
            ["  an attacker's right guess, on average", f"{percent(limit_forecast.guess)} at most", "", "", "", ""]
        )
    if limit_forecast.evaluated is not None:
        rows.append(["  patients set aside, all evaluations", number(limit_forecast.evaluated), "", "", "", ""])
    if limit_forecast.least is not None:
        rows.append(["  for any data", f"{number(limit_forecast.least, round_down=True)} at least", "", "", "", ""])
    return rows


def show_signals(
    sizes: list[SignalToNoise], parameters: int | None, settings: StudySettings, outlook: Forecast
) -> None:
    columns = ["records", "batch", "signal at most", "noise", "signal / noise", "study's signal / noise"]
    columns.append("equal at parameters" if parameters is None else f"over {parameters} parameters")
    rows: list[list[str]] = []
    for signal in sizes:
        size = "any" if signal.records is None else f"{signal.records:,}"
        batch = "" if signal.expected_batch is None else f"{signal.expected_batch:g}"
        last = _short_number(signal.parameters) if parameters is None else _against(signal, parameters)
        rows.append(
            [
                size,
                batch,
                f"{signal.signal:g}",
                f"{signal.noise:g}",
                f"{signal.alone:.3g}",
                f"{signal.together:.3g}",
                last,
            ]
        )
    hospitals, steps = settings.privacy.expected_clients, outlook.rounds * outlook.plan.steps_per_round
    table("Noise against signal", columns, rows)
    say(
        "Signal: norm of a hospital's clipped sum in one step, at most, on average. Noise: standard deviation in every "
        f"coordinate. The study: {hospitals:g} such hospitals that all agree, over {steps} steps."
    )


def _against(signal: SignalToNoise, parameters: int) -> str:
    ratio = signal.together / parameters**0.5
    return f"{ratio:.3g}{'' if ratio >= 1 else ', the noise is larger'}"


def _short_number(parameters: float) -> str:
    return f"{parameters:.3g}" if parameters < 1e4 else f"{parameters:.2e}"


def show_replaced(replaced: dict[str, Any], output: Path | None) -> None:
    if replaced:
        say("\nSettings to copy:" if output is None else f"\n{output}: written, with")
        for name, value in replaced.items():
            say(f"{name} = {value!r}")
    elif output is not None:
        say(f"\n{output}: written, with the same settings")


def why_unchanged(solve: str, outlook: Forecast) -> str:
    """Return a note for a search that found no other number."""
    if solve == "order" and all(limit_forecast.order is None for limit_forecast in outlook.limits):
        return "note: --solve order finds nothing: no limit of these settings is kept at an order"
    return f"note: --solve {solve} changes nothing: the settings have what it finds"


def show_notes(settings: StudySettings, outlook: Forecast, notes: Sequence[str] = ()) -> None:
    from study_protocol.study.slots import notes_on_slots

    for line in notes:
        say(line, err=True)
    if any(limit_forecast.limit.definition == "bayesian" for limit_forecast in outlook.limits):
        say(
            "note: Bayesian numbers are worst cases at the clip norm. The real ones depend on the data, and the study "
            "runs for as long as they allow",
            err=True,
        )
    for limit_forecast in outlook.limits:
        # Within the precision that is printed.
        if limit_forecast.least is not None and limit_forecast.least > limit_forecast.epsilon * (1 - 1e-3):
            say(
                f"note: the Bayesian limit at level {limit_forecast.limit.level} has no benefit: no accounting sample "
                "of this size can show less than the worst case. Take a larger sample, or a classical limit alone",
                err=True,
            )
    expected, min_clients = settings.privacy.expected_clients, settings.schedule.min_clients
    if min_clients > expected:
        say(
            f"note: schedule.min_clients is {min_clients}, but privacy.expected_clients says that {expected:g} "
            "hospitals are asked in a round on average. Rounds will be abandoned, or updates are divided by too small "
            "a number",
            err=True,
        )
    for line in (*_notes_on_clip_norm(settings), *notes_on_slots(settings, outlook.rounds)):
        say(f"note: {line}", err=True)
    wrong = _wrong_task(settings.training)
    if wrong is not None:
        say(f"note: {wrong}", err=True)
    note_bounds(settings)
    note_windows(settings)


def _notes_on_clip_norm(settings: StudySettings) -> list[str]:
    privacy = settings.privacy
    moves = f"clip norm {privacy.clip_norm:g} is that of the first round, and adaptive_clip moves it. ε stays the same"
    return [] if privacy.adaptive_clip is None else [moves]


def note_bounds(settings: StudySettings) -> None:
    """Print why a coordinator refuses these settings: their guarantee is too weak."""
    from study_protocol.study.bounds import beyond_bounds

    beyond = [] if settings.beyond_bounds else beyond_bounds(settings)
    if beyond:
        reasons = "; ".join(beyond)
        say(f"note: `study create` refuses these settings without --i-know: {reasons}", err=True)


def note_windows(settings: StudySettings) -> None:
    """Print why a coordinator refuses these settings: the windows of later patients do not fit together."""
    from accounting.budget.budget import Budget
    from accounting.plan.limits import PlanError
    from study_protocol.documents.kept_windows import require_windows
    from study_protocol.study.plan_of import plan_of

    try:
        require_windows(settings, Budget(plan_of(settings)))
    except PlanError as error:
        say(f"note: `study create` refuses these settings: {error}", err=True)


def _wrong_task(training: Training) -> str | None:
    """Return why the task cannot be loaded here, or None.

    This is only a note: hospitals may have a package that this machine lacks.
    """
    from private_learning import tasks

    try:
        tasks.load(training.task, training.task_parameters)
    except tasks.TaskError as error:
        return str(error)
    return None


def _stopping_limits(outlook: Forecast) -> str:
    return " and ".join(f"the {limit.definition} limit at level {limit.level}" for limit in outlook.stopped_by)


def why_no_round(outlook: Forecast) -> str:
    from accounting.budget.budget import Budget
    from accounting.errors import AccountingError
    from study_protocol.study.setting_names import naming_settings

    try:
        with naming_settings():
            Budget.open(outlook.plan)
    except AccountingError as error:
        return str(error)
    return f"{_stopping_limits(outlook)} would be passed"
