"""The files of the demonstration: the model, the account, the ledger, and one page to read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accounting.budget.ledger import Entry
from study_protocol.study.limit_statement import LimitStatement
from study_protocol.study.limit_words import progress_in_words
from study_protocol.study.messages import BudgetStatement
from study_protocol.study.settings import StudySettings
from wardround.cli.shared.shared import number
from wardround.demo.board import Accuracies
from wardround.demo.scenarios import Scenario
from wardround.demo.verdict import meaning, verdict


def write(
    folder: Path,
    model: bytes,
    scenario: Scenario,
    settings: StudySettings,
    budget: BudgetStatement,
    entries: Sequence[Entry],
    by_round: Mapping[int, float],
    accuracies: Accuracies,
    baselines: Mapping[str, Any],
    by_hospital: Sequence[str] = (),
) -> Path:
    """Write everything under `folder`; returns the page.

    model        what is reported, the mean of released ones
    by_hospital  what the certificate says of the hospitals
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(model)
    for name, content in (
        ("settings.json", settings.as_json()),
        ("budget.json", budget.model_dump(mode="json")),
        ("ledger.json", [entry.to_dict() for entry in entries]),
        (
            "accuracy.json",
            {
                "by_round": by_round,
                "study": accuracies.study,
                "averaged_rounds": list(accuracies.averaged),
                "own_patients": None if accuracies.own_patients is None else asdict(accuracies.own_patients),
                "baselines": baselines,
            },
        ),
    ):
        (folder / name).write_text(json.dumps(content, indent=1, allow_nan=False))
    page = folder / "report.md"
    spoken = ["", "## For whom the Bayesian number does not speak", "", *(f"- {line}" for line in by_hospital), ""]
    text = _page(scenario, settings, budget, accuracies, baselines)
    page.write_text(text + ("\n".join(spoken) if by_hospital else ""))
    return page


def _page(
    scenario: Scenario,
    settings: StudySettings,
    budget: BudgetStatement,
    accuracies: Accuracies,
    baselines: Mapping[str, Any],
) -> str:
    privacy = settings.privacy
    lines = [
        "# A study under a privacy budget",
        "",
        verdict(accuracies.study, baselines["alone"], budget.limits),
        "",
        f"{scenario.source}, {scenario.split}.",
        f"Trained on {scenario.patients}, evaluated on {len(scenario.evaluation)} outside the guarantee.",
        f"Scheme {privacy.rules.display_name}, noise multiplier {privacy.noise_multiplier:g}, "
        f"clip norm {privacy.clip_norm:g}, sampling rate {privacy.sampling_rate:g}, "
        f"at most {privacy.max_steps} noised steps.",
        "",
        f"Ended after {accuracies.rounds} rounds: {budget.stop_reason}.",
        "",
        "| level | definition | ε guaranteed | limit | δ | enforced by |",
        "|---|---|---|---|---|---|",
    ]
    lines += map(_limit_row, budget.limits)
    lines += ["", "## What each number says", ""]
    for limit in budget.limits:
        if limit.certificate is not None:
            lines.append(f"- {meaning(limit)}. {limit.certificate.get('assumption')}")
    lines += ["", "## Accuracy on the evaluation set", "", "| model | accuracy |", "|---|---|"]
    lines.append(
        f"| this study, {accuracies.mean} | {'—' if accuracies.study is None else f'{accuracies.study:.4f}'} |"
    )
    if (own_accuracy := accuracies.own_patients) is not None:
        lines.append(f"| its last model, {own_accuracy.in_words()} | {own_accuracy.accuracy:.4f} |")
    lines.append(f"| pooled, no privacy | {baselines['pooled']:.4f} |")
    for kind, sentence in (("private", "alone, same limits"), ("alone", "alone, no privacy")):
        lines += [f"| {name} {sentence} | {value:.4f} |" for name, value in baselines.get(kind, {}).items()]
    lines.append(f"| majority class | {baselines['majority']:.4f} |")
    return "\n".join(lines) + "\n"


def _limit_row(limit: LimitStatement) -> str:
    if limit.epsilon is None:
        return f"| {limit.level} | unbounded: this scheme does not protect it | | | | |"
    numbers = f"{number(limit.spent, 4)} | {limit.epsilon:g} | {limit.delta:g}"
    progress = progress_in_words(limit)
    enforced_by = limit.enforced_by if progress is None else f"{limit.enforced_by}: {progress}"
    return f"| {limit.level} | {limit.definition} | {numbers} | {enforced_by} |"
