"""The task that fits a label, guessed from the label's cells, and columns that give the label away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import ConfigurationError
from client_sdk.study.guessed_columns import (
    MIN_PATIENTS,
    Codes,
    is_identifier,
    numeric_share,
    patients_of,
    people_of,
    rounded_range,
    words_of,
)
from private_learning.records import Table
from private_learning.records.records import like
from private_learning.tasks.columns import PREFIX, read_columns
from private_learning.tasks.declared_columns import CategoryColumn
from study_protocol.cells import column_name, read_numbers

CLASSES, NUMBER, SURVIVAL, LABELS = "logistic-regression", "regression", "discrete-survival", "multi-label"
# Different values that are classes, at most: of whole numbers, and of words. Of the cells that a number must be.
_MAX_NUMBERS, _MAX_CLASSES, _NUMERIC = 10, 50, 0.9
MIN_PEOPLE = 50
# A column gives the label away if it leaves so little of the error of the commonest class, or of the ranks.
_LEFT_ERROR, _RANKS = 0.02, 0.995
_MAX_VALUES = 50
_CUTS = (0.2, 0.4, 0.6, 0.8, 0.95)


@dataclass(frozen=True, repr=False)
class GuessedTask:
    """A task with the parameters that are about the label.

    targets  columns that the model learns to predict
    rows     (n,) the rows of the records that have a usable label
    outcome  (n,) of these rows: a class, a number, or the time of an event
    words    what was assumed, in one sentence
    """

    name: str
    parameters: Mapping[str, Any]
    targets: tuple[str, ...]
    rows: NDArray[np.int64] = field(repr=False)
    outcome: NDArray[np.float64] = field(repr=False)
    words: str

    @property
    def of_classes(self) -> bool:
        return self.name not in (NUMBER, SURVIVAL)


def guess_task(table: Table, labels: Sequence[str], event: str | None = None, task: str | None = None) -> GuessedTask:
    """Return the task for one label, for several that are each yes or no, or for a time with an event.

    task: a person's own choice, by the task's name. None: as the label's cells suggest.

    Raises:
        ConfigurationError: no task fits, or the records are hopeless. The sentence says what to change.
    """
    targets = _targets(table, [*labels, event] if event else labels)
    people = len(set(table.patients))
    if people < MIN_PEOPLE:
        raise ConfigurationError(
            f"{people} patients are too few to learn from: with fewer than {MIN_PEOPLE}, noise and chance hide every "
            "result. Try records of more patients"
        )
    kind = _kind(labels, event, task)
    if kind == SURVIVAL:
        return _survival(table, *targets)
    if kind == LABELS:
        return _multi_label(table, targets)
    if kind not in (None, NUMBER, CLASSES, "mlp"):
        raise ConfigurationError(f"--task {kind}: choose {CLASSES}, mlp, {NUMBER}, {SURVIVAL} or {LABELS}")
    if kind == NUMBER or (kind is None and _is_number(table, targets[0])):
        return _number(table, targets[0], is_chosen=kind is not None)
    return _classes(table, targets[0], kind or CLASSES)


def _targets(table: Table, names: Sequence[str]) -> tuple[str, ...]:
    targets = tuple(require_column(table, name) for name in names)
    if len(set(targets)) < len(targets):
        raise ConfigurationError("--label and --event name one column twice: name each once")
    return targets


def _kind(labels: Sequence[str], event: str | None, task: str | None) -> str | None:
    """Return the task as far as the number of columns says it. Raises ConfigurationError: they do not fit together."""
    kind = task or (SURVIVAL if event else LABELS if len(labels) > 1 else None)
    if (kind == SURVIVAL) != (event is not None) or (kind == LABELS) != (len(labels) > 1):
        raise ConfigurationError(
            f"--task {SURVIVAL} goes with one --label (the time) and --event COLUMN, and {LABELS} with several --label"
        )
    return kind


def giveaways(lines: Mapping[str, str], table: Table, task: GuessedTask) -> dict[str, str]:
    """Return columns that tell the label nearly alone -> the reason why they are no inputs. table: the task's rows."""
    reason = "it gives the label away. If it is known before the outcome: --keep"
    reasons: dict[str, str] = {}
    for name, text in lines.items():
        (declared,) = read_columns({PREFIX + name: text})
        if isinstance(declared, CategoryColumn):
            values = declared.read(table.columns[name]).places.astype(np.float64)
        else:
            numbers = declared.read(table.columns[name]).values
            values = np.where(np.isnan(numbers), -np.inf, numbers)
        if (_tells_class if task.of_classes else _tells_number)(values, task.outcome):
            reasons[name] = reason
    return reasons


def require_column(table: Table, name: str) -> str:
    """Return the name as the table has it. Raises ConfigurationError: it has no such column."""
    if (spelled := column_name(name)) in table.columns:
        return spelled
    near = like(name, table.columns)
    hint = f"did you mean {near}?" if near else f"columns are {', '.join(list(table.columns)[:10])}"
    raise ConfigurationError(f"the records have no column {name}: {hint}")


def _is_number(table: Table, label: str) -> bool:
    column = table.columns[label]
    codes = words_of(column)[1]
    distinct = len(np.unique(codes[codes >= 0]))
    values = read_numbers(column).values
    whole = bool((values[~np.isnan(values)] % 1 == 0).all())
    return numeric_share(column) >= _NUMERIC and (distinct > _MAX_NUMBERS or (not whole and distinct > 2))


def _require_values(label: str, usable: NDArray[np.bool_]) -> None:
    if not usable.any():
        raise ConfigurationError(f"column {label} has no values: all are missing. Name another --label")


def _number(table: Table, label: str, *, is_chosen: bool) -> GuessedTask:
    numbers = read_numbers(table.columns[label]).values
    rows = np.flatnonzero(~np.isnan(numbers))
    _require_values(label, ~np.isnan(numbers))
    values = numbers[rows]
    ends = rounded_range(values)
    if ends is None:
        raise ConfigurationError(f"column {label} has one value for nearly all patients: there is nothing to learn")
    if not is_chosen and is_identifier(label, values):
        raise ConfigurationError(
            f"column {label} has another value for nearly every patient, as an identifier has: name the outcome "
            f"(--label), or say --task {NUMBER} if it is a measured number"
        )
    words = f"{label} is read as a number from {ends[0]:g} to {ends[1]:g} (--task {CLASSES}: as classes)"
    return GuessedTask(NUMBER, {"label": label, "low": ends[0], "high": ends[1]}, (label,), rows, values, words)


def _classes(table: Table, label: str, task: str) -> GuessedTask:
    words, codes = words_of(table.columns[label])
    _require_values(label, codes >= 0)
    counts = patients_of(codes, people_of(table), len(words))
    distinct = int((counts > 0).sum())
    if distinct == 1:
        raise ConfigurationError(
            f"column {label} has one value for all patients: there is nothing to learn. Name another --label, or "
            "records with both outcomes"
        )
    if distinct > _MAX_CLASSES:
        raise _too_many_classes(label, distinct, int((codes >= 0).sum()))
    frequent = _frequent_in_order(words, counts)
    if len(frequent) < 2:
        raise ConfigurationError(
            f"fewer than two values of column {label} have {MIN_PATIENTS} patients: there is too little to learn from"
        )
    names = [words[code] for code in frequent]
    place = np.full(len(words), -1, np.int64)
    place[frequent] = np.arange(len(frequent))
    outcome = np.where(codes >= 0, place[codes], -1)
    rows = np.flatnonzero(outcome >= 0)
    are_numbers = names == [str(number) for number in range(len(names))]
    parameters = {"label": label} | ({"classes": len(names)} if are_numbers else {"label-values": "|".join(names)})
    rare = distinct - len(frequent)
    reading = f"{label} is read as {len(names)} classes: {', '.join(names[:10])}{', …' if len(names) > 10 else ''}"
    reading += f". {rare} more with fewer than {MIN_PATIENTS} patients are left out" if rare else ""
    reading += _other_reading(table, label)
    return GuessedTask(task, parameters, (label,), rows, outcome[rows].astype(np.float64), reading)


def _frequent_in_order(words: list[str], counts: NDArray[np.int64]) -> list[int]:
    """Return places of the words that enough patients have, so that no word of few stands in the settings."""
    places: list[int] = np.flatnonzero(counts >= MIN_PATIENTS).tolist()
    frequent = sorted(places, key=lambda code: _order(words[code]))
    # "no" is class 0, as elsewhere.
    is_yes_first = len(frequent) == 2 and words[frequent[0]].casefold() in _YES - {"1"}
    return frequent[::-1] if is_yes_first else frequent


def _too_many_classes(label: str, distinct: int, cells: int) -> ConfigurationError:
    nearly = ", another for nearly every patient" if distinct > cells / 2 else ""
    return ConfigurationError(
        f"column {label} has {distinct:,} different values{nearly}, and a label has at most {_MAX_CLASSES}: name "
        "the outcome, or group its values"
    )


def _other_reading(table: Table, label: str) -> str:
    return f" (--task {NUMBER}: as a number)" if numeric_share(table.columns[label]) >= _NUMERIC else ""


def _order(word: str) -> tuple[float, str]:
    """Numbers by size, then words by the alphabet."""
    try:
        return float(word), word
    except ValueError:
        return float("inf"), word


def _no_yes(table: Table, name: str) -> tuple[tuple[str, str], Codes]:
    """Return the two words of a column, the one for no first, and 0, 1 or -1 for each cell.

    Raises:
        ConfigurationError: it has other than two values.
    """
    words, codes = words_of(table.columns[name])
    distinct: list[int] = np.unique(codes[codes >= 0]).tolist()
    if len(distinct) != 2:
        raise ConfigurationError(f"column {name} has {len(distinct)} values, and two are expected, such as 0 and 1")
    first, second = sorted(distinct, key=lambda code: (words[code].casefold() in _YES, _order(words[code])))
    return (words[first], words[second]), np.select([codes == first, codes == second], [0, 1], -1)


_YES = frozenset(("1", "yes", "y", "true", "dead", "died", "expired", "deceased", "event", "ja", "oui", "si"))


def _survival(table: Table, time: str, event: str) -> GuessedTask:
    times = read_numbers(table.columns[time]).values
    no_yes, events = _no_yes(table, event)
    usable = ~np.isnan(times) & (events >= 0)
    usable &= np.nan_to_num(times, nan=-1.0) >= 0
    _require_values(time, usable)
    rows = np.flatnonzero(usable)
    cuts = sorted({_two_digits(float(np.quantile(times[rows], share))) for share in _CUTS} - {0.0})
    if len(cuts) < 2 or patients_of(events[rows], people_of(table)[rows], 2)[1] < MIN_PATIENTS:
        raise ConfigurationError(f"{event} has fewer than {MIN_PATIENTS} events, or {time} hardly varies: name others")
    parameters: dict[str, Any] = {"time": time, "event": event, "cuts": "|".join(f"{cut:.15g}" for cut in cuts)}
    if no_yes != ("0", "1"):
        parameters["event-values"] = "|".join(no_yes)
    words = f"{time} is read as the time until {event} is {no_yes[1]}, or until follow-up ends with {no_yes[0]}"
    return GuessedTask(SURVIVAL, parameters, (time, event), rows, times[rows], words)


def _multi_label(table: Table, targets: tuple[str, ...]) -> GuessedTask:
    read = [_no_yes(table, name) for name in targets]
    if len({words for words, _ in read}) > 1:
        raise ConfigurationError("the labels are written with different words: write all as 0 and 1")
    usable = np.stack([codes for _, codes in read]) >= 0
    rows = np.flatnonzero(usable.any(axis=0))
    words = read[0][0]
    parameters: dict[str, Any] = {"labels": "|".join(targets)} | (
        {} if words == ("0", "1") else {"label-values": "|".join(words)}
    )
    outcome = sum(2**place * codes for place, (_, codes) in enumerate(read))
    reading = f"{len(targets)} labels, each {words[0]} or {words[1]}"
    return GuessedTask(LABELS, parameters, targets, rows, np.asarray(outcome, np.float64)[rows], reading)


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def _tells_class(values: NDArray[np.float64], outcome: NDArray[np.float64]) -> bool:
    classes = np.unique(outcome, return_inverse=True)[1]
    counts = np.bincount(classes)
    limit = _LEFT_ERROR * (len(classes) - counts.max())
    distinct, places = np.unique(values, return_inverse=True)
    if len(distinct) <= _MAX_VALUES:
        joint = np.zeros((len(distinct), len(counts)), np.int64)
        np.add.at(joint, (places, classes), 1)
        return len(classes) - int(joint.max(axis=1).sum()) <= limit
    if len(counts) > 2:
        return False
    # The best single threshold, between two different values.
    order = np.argsort(values, kind="stable")
    ones = np.cumsum(classes[order])[np.r_[values[order][1:] != values[order][:-1], True]]
    below = np.flatnonzero(np.r_[values[order][1:] != values[order][:-1], True]) + 1
    wrong = ones + (len(classes) - below) - (ones[-1] - ones)
    return int(min(wrong.min(), (len(classes) - wrong).min())) <= limit


def _tells_number(values: NDArray[np.float64], outcome: NDArray[np.float64]) -> bool:
    finite = np.isfinite(values)
    if finite.sum() < MIN_PATIENTS or finite.mean() < 1 / 2 or len(np.unique(values[finite])) < MIN_PATIENTS:
        return False
    first, second = (np.unique(each[finite], return_inverse=True)[1] for each in (values, outcome))
    return abs(float(np.corrcoef(first, second)[0, 1])) >= _RANKS
