"""Print the last answer of a regression as statistics programs do: one row for each term."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from wardround.cli.shared.shared import number, say, table

if TYPE_CHECKING:
    from accounting.plan.statistics import AnyPlan
    from client_sdk.api.client import Client
    from study_protocol.queries.answer import Answer, AnswerTable
    from study_protocol.study.queries import Query

_Row = Mapping[str, float | str | None]
_NEEDED = {"term", "estimate", "low", "high", "std_error", "p_value", "dp_error"}


def is_result(answer: Answer) -> bool:
    """Return whether these are the coefficients of a regression, and not a step on the way to them."""
    names = {each.name for each in answer.tables}
    first = answer.tables[0]
    # Suppressed, the number of patients has a table without a row.
    return first.name == "coefficients" and set(first.columns) >= _NEEDED and "patients" in names


def show_regression(answer: Answer) -> None:
    """Print the coefficients beside their ratios, and the number of patients."""
    tables = {each.name: each for each in answer.tables}
    first, ratios = answer.tables[0], tables.get("ratios")
    heads, lines = ["", "coefficient", "std. error", "of it noise", "p", "95 % interval"], [*map(_line, _rows(first))]
    if ratios is not None:
        heads += [ratios.title.removesuffix("s"), "95 % interval"]
        effects = {row["term"]: row for row in _rows(ratios)}
        lines = [[*line, *_ratio(effects.get(line[0]))] for line in lines]
    table(first.title, heads, lines)
    for row in _rows(tables["patients"]):
        say(f"{tables['patients'].title}: {_figure(row['estimate'])} (95 % {_interval(row)})")


def cost_lines(client: Client, query: Query) -> list[str]:
    """Return what all steps of a regression cost by themselves, one line for each limit of the study."""
    from accounting.budget.budget import Budget
    from study_protocol.study.plan_of import plan_of

    cost, *later = query.document.first_step().costs()
    # An empty budget of the same plan: what the study has spent so far is shown by other commands.
    budget = Budget(_without_training(plan_of(client.study(query.study).settings))).supposing(later)
    steps = f"its {1 + len(later)} steps together cost" if later else "it costs"
    return [
        f"{steps} ε {number(account.epsilon_after_query(cost))} at δ {account.limit.delta:g} "
        f"({account.limit.level} {account.limit.definition}), if the study asked nothing else"
        for account in budget.accounts
    ]


def _without_training(plan: AnyPlan) -> AnyPlan:
    """Return a plan of questions alone with the same classical limits.

    Some rules state the whole training from the first charge on, which a question alone does not cost. A plan with a
    Bayesian limit stays: what its questions cost depends on the study.
    """
    from accounting.plan.queries import QueryPlan
    from accounting.plan.statistics import StatisticsPlan
    from accounting.units import Definition

    if plan.queries is None or any(limit.definition is not Definition.CLASSICAL for limit in plan.limits):
        return plan
    limits = tuple(replace(limit, enforcement=None) for limit in plan.limits)
    return StatisticsPlan(limits, QueryPlan(plan.queries.max_queries, plan.queries.max_cells), plan.observer)


def _rows(answer_table: AnswerTable) -> Iterator[_Row]:
    return (dict(zip(answer_table.columns, row, strict=True)) for row in answer_table.rows)


def _line(row: _Row) -> list[str]:
    figures = [_figure(row[name]) for name in ("estimate", "std_error", "dp_error")]
    return [str(row["term"]), *figures, _p_value(row["p_value"]), _interval(row)]


def _figure(value: float | str | None) -> str:
    return "unknown" if value is None else value if isinstance(value, str) else f"{value:.4g}"


def _p_value(value: float | str | None) -> str:
    return "< 0.0001" if isinstance(value, float) and value < 1e-4 else _figure(value)


def _interval(row: _Row) -> str:
    low, high = row["low"], row["high"]
    if low is None and high is None:
        return "unknown"
    ends = ("-∞" if low is None else _figure(low), "∞" if high is None else _figure(high))
    return " to ".join(ends)


def _ratio(row: _Row | None) -> list[str]:
    return ["", ""] if row is None else [_figure(row["estimate"]), _interval(row)]
