"""The settings that `wardround try` runs and writes: of `plan --suggest`, or as near as another task allows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from wardround.cli.hospital.columns import CHECK, WARNING, without_numbers

if TYPE_CHECKING:
    from client_sdk.study.guessed_columns import GuessedColumns
    from client_sdk.study.guessed_label import GuessedTask
    from study_protocol.study.settings import StudySettings
    from study_protocol.study.suggestion import AccuracyForecast

# Also of a few patients: a larger one would say little.
_LARGEST_DELTA = 1e-5
_PUBLIC_PATIENTS, _PUBLIC_DELTA = 1000, 1e-6
# Entries that come from the records, beside columns.
_FROM_RECORDS = re.compile(
    r'^("column\..*|label-values|"label-values"|"event-values"|low|high|cuts'
    r"|expected_batch_size|rows_per_patient|delta) = "
)
_RANGES, _WORDS = ("low", "high", "cuts"), ("label-values", "event-values")


@dataclass(frozen=True)
class TrialSettings:
    """Settings for hospitals of any size.

    parameters  the task's, with the guessed columns
    rows        of one patient, at most
    """

    task: str
    parameters: Mapping[str, Any] = field(repr=False)
    hospitals: int
    epsilon: float
    delta: float
    rows: int = 1

    @classmethod
    def of(
        cls, task: GuessedTask, guessed: GuessedColumns, hospitals: int, epsilon: float, patients: int, rows: int
    ) -> TrialSettings:
        """Return them with a δ of at most a tenth of 1 / patients of all hospitals."""
        from private_learning.tasks.columns import PREFIX

        columns = {PREFIX + name: text for name, text in guessed.lines.items()}
        delta = min(_LARGEST_DELTA, float(f"1e-{len(str(10 * hospitals * patients))}"))
        return cls(task.name, {**task.parameters, **columns}, hospitals, epsilon, delta, rows)

    def of_size(self, patients: int) -> StudySettings:
        """Return the settings for hospitals with so many patients each. Raises ConfigurationError, Unreachable."""
        return self.with_forecast(patients)[0]

    def with_forecast(
        self, patients: int, hospitals: int | None = None, epsilon: float | None = None
    ) -> tuple[StudySettings, AccuracyForecast | None]:
        """Return settings, and the forecast of `plan --suggest` or None: it was not measured for the task."""
        from private_learning.tasks.registry import load
        from wardround.cli.lead.suggest import begun, suggested
        from wardround.cli.lead.templates import DEFAULT_TASK

        values = begun(
            patients=[patients],
            hospitals=hospitals or self.hospitals,
            columns=1,
            classes=2,
            epsilon=epsilon or self.epsilon,
            delta=self.delta,
            scheme="parallel",
            masked=False,
        )
        values["training"] |= {
            "task": self.task,
            "task_parameters": dict(self.parameters),
            "rows_per_patient": self.rows,
        }
        load(self.task, self.parameters)
        if self.task == DEFAULT_TASK:
            suggestion = suggested(values, patients=[patients], hopeless=True)
            return suggestion.settings, suggestion.forecast
        return _like_suggested(values, patients), None

    @property
    def width(self) -> int:
        """Return how many numbers stand for one row."""
        from private_learning.tasks.columns import read_columns

        return sum(column.width for column in read_columns(self.parameters))

    def halved(self) -> TrialSettings:
        """Return the settings with every second column, for the noise of so many."""
        from private_learning.tasks.columns import PREFIX

        columns = [name for name in self.parameters if name.startswith(PREFIX)]
        left_out = columns[1::2]
        return replace(self, parameters={k: v for k, v in self.parameters.items() if k not in left_out})

    def text(self, patients: int, task: GuessedTask, *, names_only: bool) -> str:
        """Return the settings file for hospitals of this size, with a mark at each entry that came from records."""
        from wardround.cli.lead.templates import study_text

        # Without a number of the records: their patients set batch, noise and δ.
        public = replace(self, delta=_PUBLIC_DELTA, rows=min(self.rows, 2)) if names_only else self
        values = public.of_size(_PUBLIC_PATIENTS if names_only else patients).as_json()
        head, words = f"Written by `wardround try`. {WARNING}.", task.words
        if names_only:
            values["training"]["task_parameters"] = self._names()
            head, words = _NAMES_ALONE, task.name
        lines = [f"{line}  {CHECK}" if _FROM_RECORDS.match(line) else line for line in study_text(values).splitlines()]
        return "\n".join([f"# {head}", f"# Assumed: {words}.", *lines]) + "\n"

    def _names(self) -> dict[str, Any]:
        """Return the task's parameters with placeholders for what the records told."""
        from private_learning.tasks.columns import PREFIX

        described = {name.removeprefix(PREFIX): text for name, text in self.parameters.items() if PREFIX in name}
        public = {
            name: "VALUES" if name in _WORDS else value
            for name, value in self.parameters.items()
            if PREFIX not in name and name not in _RANGES
        }
        return public | {PREFIX + name: text for name, text in without_numbers(described).items()}


_NAMES_ALONE = (
    "Written by `wardround try --names-only`: fill in LOW, HIGH, MIDDLE, CATEGORIES, VALUES and the lines that lack, "
    f"from public knowledge. Noise and batch are for {_PUBLIC_PATIENTS:,} patients: run `wardround plan --suggest`."
)


def _like_suggested(values: dict[str, Any], patients: int) -> StudySettings:
    """Return settings by the rule for logistic regression, with the template's step at most for a squared error."""
    from accounting.budget.solve import least_noise
    from private_learning.tasks.registry import load
    from study_protocol.study import suggestion
    from study_protocol.study.plan_of import plan_of
    from wardround.cli.lead.enforcement import with_tightest
    from wardround.cli.lead.suggest import as_settings, optimiser_by_rule, privacy_by_rule
    from wardround.cli.lead.templates import SMALLER_STEPS
    from wardround.cli.shared.settings_file import changed_settings

    training = values["training"]
    model = load(training["task"], training["task_parameters"]).model()
    parameters = sum(weights.numel() for weights in model.parameters() if weights.requires_grad)
    values["privacy"] |= privacy_by_rule(float(patients), suggestion.ROUNDS)
    plan = least_noise(with_tightest(plan_of(as_settings(values)))[0])
    numbers = suggestion.PublicNumbers(round(values["privacy"]["expected_clients"]), patients, patients, parameters)
    noise = suggestion.relative_noise(numbers, plan.noise_multiplier, suggestion.ROUNDS)
    rate = suggestion.learning_rate(noise, suggestion.ROUNDS)
    if (smaller := SMALLER_STEPS.get(training["task"])) is not None:
        # A squared error is steep: with longer steps than the template's the model oscillates.
        rate = min(rate, 1.0) * smaller
    training["optimiser"] = optimiser_by_rule(rate)
    return changed_settings(as_settings(values), plan)[0]
