"""The output of the demonstration: one row per round, and the account at the end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from accounting.units import RUNNING_CONDITION
from study_protocol.study.limit_statement import LimitStatement
from study_protocol.study.messages import BudgetStatement, RoundView
from study_protocol.study.reasons import ENDINGS
from study_protocol.study.settings import StudySettings
from wardround.cli.shared.shared import number
from wardround.demo.own_patients import OwnPatients
from wardround.demo.scenarios import Scenario
from wardround.demo.verdict import meaning, verdict

BAR = 8
WIDTH = 100
EXACTLY = "privacy-loss distribution"
_COLUMNS = {
    "plain": "Plain disclosure: the coordinator sees the Bayesian log-moments and stops by them, so the classical "
    "number does not hold against observers who see them.",
    "at-end": "Worst cases are enforced. The Bayesian log-moments are shown when the study has ended. Then the "
    "classical number holds against observers of the models only, not against readers of the log-moments.",
}


class Board:
    """Writes to `console`, and does not know the source of the numbers."""

    def __init__(self, console: Console, settings: StudySettings) -> None:
        self._console, self._settings = console, settings
        self._columns = [("round", 6), ("rounds left", 7), ("budget", 7)]
        self._columns += [(f"ε {limit.level} {limit.definition}", 13) for limit in settings.privacy.limits]
        # The exact reading of the same noise beside the enforced one, where there is room.
        self._tight = len(settings.privacy.limits) <= 2
        self._counted = any(limit.enforcement in ("fixed-plan", "gaussian-filter") for limit in settings.privacy.limits)
        self._columns += [("ε so far" if self._counted else "ε read exactly", 9)] * self._tight
        self._columns += [("accuracy", 10), ("clients", 8)]
        # The bar gives way where the console is narrow.
        self._bar = max(0, min(BAR, console.width - sum(width for _, width in self._columns)))
        self._columns[2] = ("budget", self._bar + 7)

    def opening(self, scenario: Scenario, origin: str, home: str) -> None:
        sizes = ", ".join(f"{name} {len(records)}" for name, records in scenario.hospitals.items())
        privacy = self._settings.privacy
        lines = [
            f"[bold]{scenario.source}[/]",
            f"{scenario.patients} train the model, {scenario.split}: {sizes}.",
            *_aside(self._settings),
            f"{len(scenario.evaluation)} more are the declared evaluation set, outside every guarantee.",
            f"Scheme {privacy.rules.display_name}, noise multiplier {privacy.noise_multiplier:g}, "
            f"clip norm {privacy.clip_norm:g}, {_drawn(privacy.sampling_rate)}.",
            *(
                f"Limit: {_limit(limit.level, limit.definition, limit.epsilon, limit.delta)}"
                for limit in privacy.limits
            ),
            *([f"[yellow]{_COLUMNS[privacy.disclosure]}[/]"] if privacy.bayesian is not None else []),
            f"coordinator {origin}",
            f"files {home}",
        ]
        self._console.print(Panel("\n".join(lines), title="Wardround", title_align="left", width=WIDTH))

    def heading(self) -> None:
        words = (
            f"ε is guaranteed whenever the study stops, from round 1 on. ε so far holds {RUNNING_CONDITION}."
            if self._counted
            else "ε is enforced at one order fixed before round 1, which adds the same term to every number: hence the "
            "jump in round 1. What is read exactly comes from the same noise."
        )
        self._console.print(f"[dim]{words}[/]", width=WIDTH, highlight=False)
        self._row([Text(name, style="bold") for name, _ in self._columns], wrap=True)

    def round(self, view: RoundView, limits: Sequence[Mapping[str, Any]]) -> None:
        """One round: what is left of the budget after it, how good the model is, who came."""
        clients = view.clients or []
        received = sum(client.state == "received" for client in clients)
        accuracy = view.metrics.values.get("accuracy") if view.metrics is not None else None
        protected = [limit for limit in limits if limit["epsilon"] is not None]
        rounds_left = min(limit["rounds_left_estimate"] for limit in protected)
        cells = [
            Text(str(view.round)),
            Text(str(rounds_left), style="bold"),
            _share(protected, self._bar),
            *map(_spent, protected),
        ]
        cells += [_exactly(protected)] * self._tight
        self._row(
            [*cells, Text(view.state if accuracy is None else f"{accuracy:.3f}"), Text(f"{received}/{len(clients)}")]
        )

    def pinned(self, names: Sequence[str], number: str) -> None:
        """Steps of people before the first round, here done by this program."""
        self._console.print(
            f"[yellow]·[/] By telephone {', '.join(names)} found that they read the same number of the roster, "
            f"and pinned it: no coordinator can make up a hospital among them.\n  {number}",
            highlight=False,
        )

    def note(self, text: str) -> None:
        """Something that happened between two rounds."""
        self._console.print(f"[yellow]· {text}[/]", highlight=False)

    def ending(self, budget: BudgetStatement, baselines: Mapping[str, Any], accuracies: Accuracies) -> None:
        reason = budget.stop_reason or "running"
        ending = (
            f"[bold]{reason}[/]: {ENDINGS[reason][1] if reason in ENDINGS else ''} (after {accuracies.rounds} rounds)"
        )
        self._panel("The study has ended", [ending])
        self._certificates(budget.limits)
        lines = [f"[bold]{verdict(accuracies.study, baselines['alone'], budget.limits)}[/]", ""]
        lines += [*self._accuracies(baselines, accuracies), "", *filter(None, map(meaning, budget.limits))]
        self._panel("What taking part brought", lines)

    def by_hospital(self, words: Sequence[str]) -> None:
        """What the certificate says by hospital, if it was asked."""
        if words:
            self._panel("For whom the Bayesian number does not speak", [f"- {line}" for line in words])

    def files(self, lines: Mapping[str, str]) -> None:
        """The places of files, never wrapped, so that commands can be copied."""
        for name, text in lines.items():
            self._console.print(f"[bold]{name}[/] {text}", soft_wrap=True, highlight=False)

    def _certificates(self, limits: Sequence[LimitStatement]) -> None:
        table = Table(title="Certificates", title_justify="left", width=WIDTH, show_lines=True)
        for name in ("level, definition", "guaranteed", "limit", "δ", "what it says"):
            table.add_column(name, ratio=1 if name == "what it says" else None)
        for limit in limits:
            if limit.epsilon is None:
                table.add_row(limit.level, "unbounded", "—", "—", "this scheme does not protect this level")
                continue
            assumption = (limit.certificate or {}).get("assumption", "")
            table.add_row(
                f"{limit.level}, {limit.definition}", number(limit.spent), f"{limit.epsilon:g}", f"{limit.delta:g}",
                f"{assumption} (enforced: {limit.enforced_by})",
            )  # fmt: skip
            for report in limit.reports:
                sentence = report.certificate.get("assumption", "")
                table.add_row(f"  {report.name}", number(report.epsilon), "", "", sentence)
        self._console.print(table)

    def _accuracies(self, baselines: Mapping[str, Any], accuracies: Accuracies) -> list[str]:
        lines = [
            _line("this study", accuracies.study, accuracies.mean),
            _line("its last model alone", accuracies.last, "with the noise of the last round"),
        ]
        if (own_accuracy := accuracies.own_patients) is not None:
            lines.append(_line("the same, on own patients", own_accuracy.accuracy, own_accuracy.in_words()))
        for kind, words in (("alone", "alone, no privacy"), ("private", "alone, same limits")):
            hospital_accuracies: Mapping[str, float] = baselines.get(kind, {})
            lines += [_line(f"{name} {words}", value, "") for name, value in hospital_accuracies.items()]
        lines += [
            _line("pooled, no privacy", baselines["pooled"], "all records in one place, for comparison only"),
            _line("majority class", baselines["majority"], ""),
        ]
        return lines

    def _panel(self, title: str, lines: Sequence[str]) -> None:
        self._console.print(Panel("\n".join(lines), title=title, title_align="left", width=WIDTH), highlight=False)

    def _row(self, cells: Sequence[Text], *, wrap: bool = False) -> None:
        table = Table(show_header=False, box=None, padding=(0, 1, 0, 0))
        for _, width in self._columns:
            table.add_column(width=width - 1, no_wrap=not wrap)
        table.add_row(*cells)
        self._console.print(table)


@dataclass(frozen=True)
class Accuracies:
    """On the evaluation set. study: of the mean of the models of the rounds `averaged`; last: of the last one.

    mean          in words
    rounds        of training
    own_patients  of the last one on the hospitals' own patients, where a query asked for it
    """

    study: float | None
    last: float | None
    averaged: Sequence[int]
    mean: str
    rounds: int
    own_patients: OwnPatients | None = None


def _limit(level: str, definition: str, epsilon: float, delta: float) -> str:
    protected = {"bayesian": "a typical patient of this population", "classical": "any patient"}[definition]
    if level == "client":
        protected = {"bayesian": "a typical hospital", "classical": "any hospital"}[definition]
    return f"{level} level, {definition}: ε ≤ {epsilon:g} at δ = {delta:g} ({protected})"


def _aside(settings: StudySettings) -> list[str]:
    evaluation = settings.evaluation
    if evaluation is None or evaluation.question is None:
        return []
    return [
        f"Of them about {evaluation.share:.0%} are set aside: the last model is evaluated on them by a query, within "
        "the limit."
    ]


def _drawn(rate: float) -> str:
    return "all records in every round" if rate == 1 else f"records drawn at rate {rate:g}"


def _share(limits: Sequence[Mapping[str, Any]], bar: int) -> Text:
    """Of the limit that is nearest to its end."""
    shares = (LimitStatement.model_validate(limit).spent_share for limit in limits)
    share = max(min(1.0, share) for share in shares if share is not None)
    full = int(share * bar)
    style = "red" if share > 0.9 else "yellow" if share > 0.6 else "green"
    return Text("█" * full + "·" * (bar - full) + f" {math.ceil(100 * share)}%", style=style)


def _spent(limit: Mapping[str, Any]) -> Text:
    progress, spent = LimitStatement.model_validate(limit).progress, number(limit["spent"], 2)
    if progress is None or progress.steps is None:
        return Text(f"{spent} / {limit['epsilon']:g}")
    return Text(f"{spent}, {progress.steps.used}/{progress.steps.allowed}")


def _exactly(limits: Sequence[Mapping[str, Any]]) -> Text:
    exact_values = (report["epsilon"] for limit in limits for report in limit["reports"] if report["name"] == EXACTLY)
    return Text(number(next(exact_values, None), 2))


def _line(name: str, value: float | None, words: str) -> str:
    return f"{name:<32}{'—' if value is None else f'{value:.3f}'}   {words}".rstrip()
