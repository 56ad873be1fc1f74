"""Accuracies that the study is compared with, computed on the same records in the same run.

pooled     one model on all hospitals' records together, without privacy, for comparison only
alone      every hospital's own model on its own records, without privacy
private    every hospital alone under the study's own limits, mechanism and accounting
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from accounting.budget.budget import Budget
from accounting.plan.report import CumulativeMoments
from client_sdk.guard.log_moments import LogMomentBounds
from private_learning.records import load as load_records
from private_learning.tasks import Task, TaskDataset, load
from private_learning.tasks.inputs import in_memory, joined
from private_learning.training import LocalTraining
from private_learning.training.weights import load_weights, weights_of
from simulation.baselines import fitted
from study_protocol.randomness.source import SecureRandomness
from study_protocol.study.averaging import mean_weights
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import TERMS
from wardround.demo.averaged import shares_of


def alone_and_private(task: Task, dataset: TaskDataset, settings: StudySettings) -> tuple[torch.nn.Module, int]:
    """One hospital as a study of its own until its budget is spent: (mean of its last models, rounds).

    Its public constants fit its own size; everything else is the study's, the averaging too.
    """
    privacy = settings.privacy
    hospital_privacy = privacy.model_copy(
        update={"expected_batch_size": privacy.sampling_rate * len(dataset), "expected_clients": 1.0}
    )
    settings = settings.model_copy(update={"privacy": hospital_privacy})
    training = LocalTraining(task, dataset, settings, SecureRandomness())
    log_moments = LogMomentBounds(settings, dataset.patients) if privacy.bayesian is not None else None
    budget = Budget.open(plan_of(settings))
    model = task.model()
    released = [weights_of(model)]
    while budget.authorise().is_allowed:
        number = len(released)
        budget.reserve(number)
        update = training.update(released[-1], log_moments, round_number=number)
        budget.settle(number, _report(log_moments))
        rate = settings.training.optimiser.learning_rate
        released.append({name: array - rate * update[name] for name, array in released[-1].items()})
    rounds = len(released) - 1
    round_shares = shares_of(settings, range(1, rounds + 1))
    mean = mean_weights([released[number] for number in round_shares], list(round_shares.values()))
    load_weights(model, mean)
    return model, rounds


def accuracy(task: Task, model: torch.nn.Module, dataset: TaskDataset) -> float:
    with torch.no_grad():
        return task.metrics(model(in_memory(dataset.inputs)), dataset.targets)["accuracy"]


def compute(
    settings: StudySettings, hospitals: Mapping[str, TaskDataset], evaluation: TaskDataset
) -> dict[str, object]:
    """JSON: accuracies on the evaluation set."""
    task = load(settings.training.task, settings.training.task_parameters)
    pooled = TaskDataset(
        joined([dataset.inputs for dataset in hospitals.values()]),
        torch.cat([dataset.targets for dataset in hospitals.values()]),
        tuple(f"{name}/{patient}" for name, dataset in hospitals.items() for patient in dataset.patients),
    )

    def plain(dataset: TaskDataset) -> float:
        return accuracy(task, fitted(task, dataset), evaluation)

    result: dict[str, object] = {
        "majority": float(np.max(np.bincount(evaluation.targets.numpy()))) / len(evaluation),
        "pooled": plain(pooled),
        "alone": {name: plain(records) for name, records in hospitals.items()},
    }
    if not any((settings.privacy.rules.central, settings.privacy.rules.pooled)):
        private = {name: alone_and_private(task, records, settings) for name, records in hospitals.items()}
        result["private"] = {name: accuracy(task, model, evaluation) for name, (model, _) in private.items()}
        result["private_rounds"] = {name: rounds for name, (_, rounds) in private.items()}
    return result


def _report(log_moments: LogMomentBounds | None) -> CumulativeMoments | None:
    if log_moments is None:
        return None
    tensors = log_moments.tensors()
    return CumulativeMoments(float(tensors[TERMS + "filter"][0]), tuple(tensors[TERMS + "moments"].tolist()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", type=Path, help="the study's settings as JSON")
    parser.add_argument("output", type=Path)
    parser.add_argument("evaluation", type=Path)
    parser.add_argument("hospitals", type=Path, nargs="+")
    parser.add_argument("--patient-column")
    options = parser.parse_args()
    settings = StudySettings.model_validate_json(options.settings.read_text())
    task = load(settings.training.task, settings.training.task_parameters)

    def read(path: Path) -> TaskDataset:
        return task.dataset(load_records(path, patient_column=options.patient_column))

    accuracies = compute(settings, {path.stem: read(path) for path in options.hospitals}, read(options.evaluation))
    options.output.write_text(json.dumps(accuracies, indent=1, allow_nan=False))


if __name__ == "__main__":
    main()
