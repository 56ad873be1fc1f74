"""What the demonstration prints: one row per round, and the account at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from client_sdk.commands.shared import number
from client_sdk.protocol.study.messages import BudgetStatement, LimitStatement, RoundView
from client_sdk.protocol.study.settings import StudySettings
from experiments.demo.scenarios import Scenario

BAR = 12
REASONS = {
    "budget-exhausted": "the next round could overspend the budget, so it does not begin",
    "max-steps-reached": "all noised steps that the guarantee allows (max_steps) have been taken",
    "stopped": "the operator stopped it",
}


class Board:
    """Writes to `console`; knows nothing about where numbers come from."""

    def __init__(self, console: Console, settings: StudySettings) -> None:
        self._console, self._settings = console, settings
        self._columns = [("round", 7), ("clients", 9), ("accuracy", 10)]
        self._columns += [(f"ε {limit.level} {limit.definition}", 24) for limit in settings.privacy.limits]
        self._columns += [("steps of max_steps", BAR + 10)]

    def opening(self, scenario: Scenario, origin: str, home: str) -> None:
        sizes = ", ".join(f"{name} {len(records)}" for name, records in scenario.hospitals.items())
        privacy = self._settings.privacy
        lines = [
            f"[bold]{scenario.source}[/]",
            f"{scenario.patients} train the model, {scenario.split}: {sizes}.",
            f"{len(scenario.evaluation)} more are the declared evaluation set, outside every guarantee.",
            f"Scheme {privacy.rules.named}; noise multiplier {privacy.noise_multiplier:g}, "
            f"clip norm {privacy.clip_norm:g}, records drawn at rate {privacy.sampling_rate:g}; "
            f"at most {privacy.max_steps} noised steps.",
            *(
                f"Limit: {_limit(limit.level, limit.definition, limit.epsilon, limit.delta)}"
                for limit in privacy.limits
            ),
            "[yellow]Plain disclosure: the coordinator sees the Bayesian log-moments and stops by them, so the "
            "number does not hold against whoever sees them.[/]",
            f"coordinator {origin} · files {home}",
        ]
        self._console.print(Panel("\n".join(lines), title="Wardround", title_align="left", width=110))

    def heading(self) -> None:
        self._row([Text(name, style="bold") for name, _ in self._columns])

    def round(self, view: RoundView, limits: Sequence[Mapping[str, Any]], steps: int) -> None:
        """One round: who came, how good the model is, what is spent after it."""
        clients = view.clients or []
        received = sum(client.state == "received" for client in clients)
        accuracy = view.metrics.values.get("accuracy") if view.metrics is not None else None
        cells = [Text(str(view.round)), Text(f"{received}/{len(clients)}")]
        cells.append(Text(view.state if accuracy is None else f"{accuracy:.3f}"))
        protected = [limit for limit in limits if limit["epsilon"] is not None]
        self._row([*cells, *(_spent(limit) for limit in protected), _bar(steps, self._settings.privacy.max_steps)])

    def pinned(self, names: Sequence[str], number: str) -> None:
        """What people do before the first round, here played by this program."""
        self._console.print(
            f"[yellow]·[/] By telephone {', '.join(names)} found that they read the same number of the roster, "
            f"and pinned it: no coordinator can make up a hospital among them.\n  {number}",
            highlight=False,
        )

    def note(self, text: str) -> None:
        """Something that happened between two rounds."""
        self._console.print(f"[yellow]· {text}[/]", highlight=False)

    def ending(self, budget: BudgetStatement, baselines: Mapping[str, Any], accuracy: float | None) -> None:
        reason = budget.stop_reason or "running"
        self._console.print(
            Panel(
                f"[bold]{reason}[/]: {REASONS.get(reason, '')} (after round {budget.round})",
                title="The study has ended",
                title_align="left",
                width=110,
            )
        )
        self._certificates(budget.limits)
        self._accuracies(baselines, accuracy)

    def files(self, lines: Mapping[str, str]) -> None:
        """Where things lie; never wrapped, so that commands can be copied."""
        for name, text in lines.items():
            self._console.print(f"[bold]{name}[/] {text}", soft_wrap=True, highlight=False)

    def _certificates(self, limits: Sequence[LimitStatement]) -> None:
        table = Table(title="Certificates", title_justify="left", width=110, show_lines=True)
        for name in ("level, definition", "spent", "limit", "δ", "what it says"):
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

    def _accuracies(self, baselines: Mapping[str, Any], accuracy: float | None) -> None:
        table = Table(title="Accuracy on the same evaluation set", title_justify="left", width=110)
        for name in ("model", "accuracy", ""):
            table.add_column(name)
        table.add_row("[bold]this study[/]", _number(accuracy), "all hospitals, within the budget")
        table.add_row(
            "pooled, no privacy", _number(baselines["pooled"]), "all records in one place: what nobody may do"
        )
        for kind, sentence in (("private", "alone, under the same limits"), ("alone", "alone, no privacy")):
            found: Mapping[str, float] = baselines.get(kind, {})
            if found:
                mean = sum(found.values()) / len(found)
                each = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
                table.add_row(sentence, f"{mean:.3f}", f"mean of {each}")
        table.add_row("majority class", _number(baselines["majority"]), "")
        self._console.print(table)

    def _row(self, cells: Sequence[Text]) -> None:
        table = Table(show_header=False, box=None, padding=(0, 1, 0, 0))
        for _, width in self._columns:
            table.add_column(width=width, no_wrap=True)
        table.add_row(*cells)
        self._console.print(table)


def _limit(level: str, definition: str, epsilon: float, delta: float) -> str:
    whom = {"bayesian": "a typical patient of this population", "classical": "anybody at all"}[definition]
    if level == "client":
        whom = {"bayesian": "a typical hospital", "classical": "any hospital at all"}[definition]
    return f"{level} level, {definition}: ε ≤ {epsilon:g} at δ = {delta:g} ({whom})"


def _spent(limit: Mapping[str, Any]) -> Text:
    spent, most = limit["spent"], limit["epsilon"]
    if spent is None:
        return Text("∞", style="red")
    share = min(1.0, spent / most)
    full = round(share * 8)
    style = "red" if share > 0.9 else "yellow" if share > 0.6 else "green"
    return Text.assemble((f"{number(spent, 2):>5}", style), f" / {most:<4g} ", ("█" * full + "·" * (8 - full), style))


def _bar(done: int, whole: int) -> Text:
    full = round(BAR * done / whole)
    return Text.assemble(("━" * full, "cyan"), ("─" * (BAR - full), "dim"), f" {done}/{whole}")


def _number(value: float | None) -> str:
    return "∞" if value is None else f"{value:.3f}"
