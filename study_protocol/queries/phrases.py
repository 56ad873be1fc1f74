"""Parts of a question in plain words, for a person who decides whether to answer it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from study_protocol.queries.variables import Condition, Indicator, Range, Variable, plain

# Longer lists of bins are said by their number and their ends. Who is asked about is always said in full.
_MAX_LABELS = 12
_ROWS = {
    "first": "Of a patient with several rows, the first counts.",
    "last": "Of a patient with several rows, the last counts.",
    "mean": "Of a patient with several rows, the mean of each number counts, and the first row's category.",
    "any": "Of a patient with several rows, the largest number counts, and the category that stands last in its list.",
}


def listed(parts: Iterable[str], word: str = "and") -> str:
    """Return "a, b and c"."""
    *leading, last = parts
    return f"{', '.join(leading)} {word} {last}" if leading else last


def who_in_words(conditions: Sequence[Condition], rows: str) -> str:
    """Return "" or " whose …", a full stop, and which of several rows counts."""
    clause = f" whose {listed(condition_in_words(condition) for condition in conditions)}" if conditions else ""
    return f"{clause}. {_ROWS[rows]}"


def condition_in_words(condition: Condition) -> str:
    codes = codes_in_words(condition.missing_values)
    if condition.categories is not None:
        return f"{condition.column} is {listed(condition.categories, 'or')}{codes}"
    lower = [] if condition.low is None else [f"at least {plain(condition.low)}"]
    upper = [] if condition.high is None else [f"below {plain(condition.high)}"]
    return f"{condition.column} is {listed([*lower, *upper])}{codes}"


def variable_in_words(variable: Variable) -> str:
    codes = codes_in_words(variable.missing_values)
    if variable.presence:
        return f"whether {variable.column} is missing{codes}"
    if len(variable.labels) <= _MAX_LABELS:
        return f"{variable.column} ({', '.join(variable.labels)}{codes})"
    if variable.edges is None:
        return f"{variable.column} ({', '.join(variable.labels)}{codes})"
    ends = f"{plain(variable.edges[0])} to {plain(variable.edges[-1])}"
    return f"{variable.column} ({len(variable.edges) - 1} bins from {ends}, below, above, or missing{codes})"


def number_in_words(number: Range | Indicator) -> str:
    codes = codes_in_words(number.missing_values)
    if isinstance(number, Indicator):
        return f"{number.column} (1 for {listed(number.categories, 'or')}, 0 for anything else{codes})"
    return f"{number.column} (clipped to {plain(number.low)} to {plain(number.high)}{codes})"


def codes_in_words(codes: Sequence[str]) -> str:
    return f", where {listed(codes, 'or')} means missing" if codes else ""
