"""The exact Bayesian ε of each hospital of `wardround demo --bayesian`, without the noise of the question.

Nothing in the product shows these numbers: they are computed from every patient's loss.

    python -m research.demonstration.by_hospital
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from accounting.budget.accounts.cumulative import CumulativeLimit
from accounting.budget.budget import Budget
from accounting.values import FloatArray
from client_sdk.guard.log_moments import LogMomentBounds
from private_learning.records import load as load_records
from private_learning.tasks import load
from private_learning.training import LocalTraining
from private_learning.training.weights import weights_of
from study_protocol.randomness.source import SecureRandomness
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from wardround.demo import scenarios
from wardround.demo.settings import settings


def losses(study: StudySettings, scenario: scenarios.Scenario, rounds: int) -> dict[str, FloatArray]:
    """Return each hospital's (patients,) losses after so many rounds, as shares of the most."""
    task = load(study.training.task, study.training.task_parameters)
    model, rate = weights_of(task.model()), study.training.optimiser.learning_rate
    parts: list[tuple[LocalTraining, LogMomentBounds]] = []
    with TemporaryDirectory() as folder:
        for name, records in scenario.hospitals.items():
            path = scenarios.write(records, Path(folder) / name)
            dataset = task.dataset(load_records(path, patient_column="patient"))
            training = LocalTraining(task, dataset, study, SecureRandomness())
            parts.append((training, LogMomentBounds(study, dataset.patients)))
        for number in range(1, rounds + 1):
            updates = [training.update(model, moments, round_number=number) for training, moments in parts]
            model = {
                key: value - rate * sum(update[key] for update in updates) / len(updates)
                for key, value in model.items()
            }
    return {name: moments.losses() for name, (_, moments) in zip(scenario.hospitals, parts, strict=True)}


def account_after(study: StudySettings, rounds: int) -> CumulativeLimit:
    """Return the account of the Bayesian limit after so many rounds."""
    budget = Budget.open(plan_of(study))
    for number in range(1, rounds + 1):
        budget.reserve(number)
        budget.settle(number, None)
    return next(account for account in budget.accounts if isinstance(account, CumulativeLimit))


def exact(account: CumulativeLimit, shares: Mapping[str, FloatArray]) -> dict[str, float]:
    """Return ε of each hospital's patients, and of all of them."""
    return {
        name: account.estimate_of_shares(each.tolist(), lambda weights: float(weights.mean()), unmeasured=0)
        for name, each in {**shares, "all": np.concatenate(list(shares.values()))}.items()
    }


def main() -> None:
    scenario, rounds = scenarios.breast_cancer(), 30
    study = settings(scenario, "parallel", bayesian=True)
    for name, epsilon in exact(account_after(study, rounds), losses(study, scenario, rounds)).items():
        print(f"{name:<12}{epsilon:.3f}")


if __name__ == "__main__":
    main()
