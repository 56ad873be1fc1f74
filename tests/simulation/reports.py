"""Outcomes of simulations written by hand."""

from __future__ import annotations

from typing import Any

from simulation.baselines import Baselines
from simulation.coordinator import LedgerEvent
from simulation.engine import RoundShown, SimulationOutcome
from simulation.results.report import SeedRun, SimulationReport
from tests.factories.settings import limit, settings

LIMITS = [limit("instance", epsilon=9.0), limit("instance", "bayesian", epsilon=4.0)]


def rounds(*accuracies: float | None, spent: float = 1.0) -> tuple[RoundShown, ...]:
    """One round for each accuracy; None: it came to nothing."""
    return tuple(
        RoundShown(
            number,
            3,
            "too-few-clients" if accuracy is None else None,
            (spent * number, spent * number / 2),
            {} if accuracy is None else {"log_loss": 1 - accuracy, "accuracy": accuracy},
        )
        for number, accuracy in enumerate(accuracies, start=1)
    )


def run(seed: int, *accuracies: float | None, spent: float = 1.0, compared: bool = True) -> SeedRun:
    events = (LedgerEvent("reserved", 1, {}), LedgerEvent("settled", 1, {"report": None}))
    running = [{"name": "privacy-loss distribution", "epsilon": 0.8 * spent}]
    statements = [{"level": "instance", "definition": "classical", "reports": running}]
    outcome = SimulationOutcome(rounds(*accuracies, spent=spent), "max-steps-reached", statements, events, {}, {})
    beside = Baselines({"accuracy": 0.9}, ({"accuracy": 0.5}, {"accuracy": 0.7}), 0.4) if compared else None
    return SeedRun(seed, 3, 90, outcome, rounds(0.8) if compared else None, beside)


def report(*runs: SeedRun) -> SimulationReport:
    chosen: Any = settings(bayesian=True, limits=LIMITS)
    return SimulationReport(chosen, "loop", runs)
