"""Membership inference on the heart-disease hospitals: a network with 32 hidden units, at several ε.

    python -m research.attacks.membership [--epsilons 8 1] [--seeds 1] [--studies 64] [--out FILE]

Each ε has 64 shadow studies of `wardround audit` a seed, under masks, 30 rounds, δ 1e-5. A seed takes some minutes on
two cores. Results go to research/benchmarks/results/membership.json.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from private_learning.tasks import of_study
from simulation.audit.membership import STUDY, AttackedModels, attacked
from simulation.audit.reconstruction import reconstruction
from simulation.audit.shadows import STUDIES, ShadowStudies, halved
from simulation.population import Population
from study_protocol.study.settings import StudySettings
from wardround.demo.scenarios import Scenario, heart_disease
from wardround.demo.settings import SETTINGS_BY_SCHEME, calibrated, settings

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "membership.json"
HIDDEN, ROUNDS, DELTA = 32, 30, 1e-5
WITHOUT = "without privacy"


def scenario(seed: int) -> Scenario:
    """Return the four hospitals, with a network as their task."""
    hospitals = heart_disease(seed)
    return replace(hospitals, task="mlp", task_parameters={**hospitals.task_parameters, "hidden": HIDDEN})


def study(hospitals: Scenario, epsilon: float) -> StudySettings:
    """Return the demonstration's masked study at this ε."""
    values = settings(hospitals, "sequential", epsilon, rounds=ROUNDS).as_json()
    for limit in values["privacy"]["limits"]:
        limit["delta"] = DELTA
    return calibrated(StudySettings.model_validate(values), ROUNDS)


def attack(epsilon: float | None, seed: int, studies: int) -> dict[str, Any]:
    """Return the attacks and reconstructions at one ε. None: trained without privacy."""
    hospitals = scenario(seed)
    chosen = study(hospitals, epsilon or SETTINGS_BY_SCHEME["heart-disease"].epsilon)
    task = of_study(chosen.training)
    parts = {name: task.dataset(records).by_patient(1) for name, records in hospitals.hospitals.items()}
    population, test = Population.of(parts), task.dataset(hospitals.evaluation)
    shadows = ShadowStudies(None if epsilon is None else halved(chosen), task, population, test).run(studies, seed)
    found = attacked(WITHOUT if epsilon is None else STUDY, task, shadows)
    show(epsilon, seed, found)
    row: dict[str, Any] = {
        "epsilon": epsilon,
        "seed": seed,
        **found.model_dump(exclude={"attacks": {"__all__": {"curve"}}}),
    }
    if epsilon is not None:
        views = reconstruction(chosen, task, population, seed=seed)
        row |= {"reconstruction": views.model_dump(exclude={"picture"})}
        print(
            *(f"    {view.name}: cosine {view.cosine:.2f}, median place {view.rank:.0f}" for view in views.views),
            sep="\n",
        )
    return row


def show(epsilon: float | None, seed: int, found: AttackedModels) -> None:
    """Print one line for each attack."""
    where = WITHOUT if epsilon is None else f"ε {epsilon:g}"
    print(f"{where}, seed {seed}: {found.metric} {found.value:.3f}, {found.studies} studies")
    for each in found.attacks:
        shares = ", ".join(
            f"{at.rate:.2%} ({at.low:.2%} to {at.high:.2%}"
            + (")" if at.ceiling is None else f", ceiling {at.ceiling:.2%})")
            + f" at {at.false_positives:.1%}"
            for at in each.at
        )
        print(f"    {each.attack}: AUC {each.auc:.3f}, found {shares}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilons", type=float, nargs="*", default=[8.0, 1.0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args(arguments)
    logging.getLogger("study_protocol.randomness.source").setLevel(logging.ERROR)
    rows = [
        attack(epsilon, seed, chosen.studies) for seed in range(chosen.seeds) for epsilon in (None, *chosen.epsilons)
    ]
    chosen.out.write_text(
        json.dumps({"hidden": HIDDEN, "rounds": ROUNDS, "delta": DELTA, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
