"""The one-run audit of Opacus 1.6, whose divisor of a batch depends on how many records there are, beside ours.

    python3 -m venv ENVIRONMENT && ENVIRONMENT/bin/pip install torch==2.13.0 'opacus==1.6.*'
    python -m research.attacks.opacus --python ENVIRONMENT/bin/python

Opacus divides a noised sum by int(records / ⌈records / batch size⌉), so that the noise of the released mean tells this
number, which no account charges (github.com/meta-pytorch/opacus/issues/819). With a batch size of 10, 100 records give
10, and 101 give 9. 105 and 106 give the same, and differ in nothing that the account does not know.

Each of 200 canaries decides by a coin whether it is in a data set of its own, on which a model of its own is trained.
So the coins are those of one run, and neighbours differ in one. The attacker knows all other records (they have no
gradient) and takes the likelihood ratio of the released gradients. The number of guesses is fixed before, and the test
is that of `wardround audit`. Our own engine has the same data sets, noise and steps, and a public divisor.
Results go to research/benchmarks/results/opacus.json. It takes two minutes.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from private_learning.records import Examples
from private_learning.tasks import of_study
from research.attacks.membership import RESULTS as BESIDE
from simulation.audit.one_run import (
    StudyLaw,
    most_provable,
    plan_guesses,
    proven_epsilon_of_any,
    refutes,
    right_guesses,
)
from simulation.audit.releases import AttackedStudy
from simulation.population import Population
from study_protocol.study.settings import StudySettings

RESULTS = BESIDE.with_name("opacus.json")
WORKER = Path(__file__).with_name("opacus_runs.py")
CANARIES, CHANCE, DELTA = 200, 0.01, 1e-5
# The canary's features are so long that its gradient is clipped.
LAW: Mapping[str, Any] = {
    "features": 500,
    "length": 1000.0,
    "learning_rate": 1e-4,
    "batch_size": 10,
    "noise_multiplier": 1.0,
    "clip_norm": 1.0,
    "steps": 10,
    "delta": DELTA,
}
Floats = NDArray[np.float64]


def divisor(records: int) -> tuple[int, float]:
    """Return what Opacus divides by, and its sampling rate (`PrivacyEngine.make_private`)."""
    rate = 1 / -(-records // LAW["batch_size"])
    return int(records * rate), rate


def ratios(released: Floats, without: tuple[float, float], within: tuple[float, float]) -> Floats:
    """Return (runs,) log-likelihood ratios of a canary along the first coordinate.

    Args:
        released: (runs, steps, coordinates) mean gradients.
        without, within: (divisor, sampling rate) without and with the canary.
    """
    noise, clip = LAW["noise_multiplier"] * LAW["clip_norm"], LAW["clip_norm"]

    def likelihood(divided: float, shift: float) -> Floats:
        sums = released * divided
        sums[..., 0] += shift
        return -np.square(sums).sum(axis=2) / (2 * noise**2) + released.shape[2] * np.log(divided)

    (out, _), (divided, rate) = without, within
    # The gradient of a positive record is against its features.
    inside = np.logaddexp(np.log1p(-rate) + likelihood(divided, 0.0), np.log(rate) + likelihood(divided, clip))
    return (inside - likelihood(out, 0.0)).sum(axis=1)


def judged(name: str, scores: Floats, inside: NDArray[np.bool_], rate: float, **facts: Any) -> dict[str, Any]:
    """Return and print what so many right guesses prove."""
    law = StudyLaw(LAW["noise_multiplier"], rate, LAW["steps"])
    guesses = plan_guesses(law, DELTA, canaries=CANARIES, chance=CHANCE).guesses
    counts = {
        "canaries": CANARIES,
        "guesses": guesses,
        "right": right_guesses(scores, inside, guesses),
        "chance": CHANCE,
    }
    row = {
        "name": name,
        "certified": law.epsilon(DELTA),
        "proven": proven_epsilon_of_any(DELTA, **counts),
        "most": most_provable(CANARIES, CHANCE, DELTA),
        "refuted": refutes(law.profile(), **counts),
        **counts,
        **facts,
    }
    print(
        f"{name}: {row['right']} of {guesses} guesses are right, proven ε {row['proven']:.2f}, certified "
        f"{row['certified']:.2f}: {'REFUTED' if row['refuted'] else 'not refuted'}",
        flush=True,
    )
    return row


def opacus(python: Path, records: int, inside: NDArray[np.bool_]) -> dict[str, Any]:
    """Audit Opacus on data sets of so many records, and one more."""
    with tempfile.TemporaryDirectory() as folder:
        out, request = Path(folder) / "released.npy", Path(folder) / "request.json"
        request.write_text(json.dumps({**LAW, "records": records, "inside": inside.tolist(), "out": str(out)}))
        done = subprocess.run([python, "-I", WORKER, request], check=True, capture_output=True, text=True)
        released = np.load(out)
    stated = json.loads(done.stdout.splitlines()[-1])
    without, within = divisor(records), divisor(records + 1)
    name = f"Opacus {stated['opacus']}, {records} or {records + 1} records, divided by {without[0]} or {within[0]}"
    facts = {"stated_by_opacus": stated["epsilon"], "torch": stated["torch"], "divisors": [without[0], within[0]]}
    return judged(name, ratios(released, without, within), inside, max(without[1], within[1]), **facts)


def ours(records: int, inside: NDArray[np.bool_]) -> dict[str, Any]:
    """Audit this project's engine on the same data sets."""
    rate = divisor(records)[1]
    settings = _settings(records * rate, rate)
    task = of_study(settings.training)
    sums: list[Floats] = []
    for seed, taken in enumerate(inside):
        features = np.zeros((records + int(taken), LAW["features"]), np.float32)
        features[records:, 0] = LAW["length"]
        population = Population.split(
            task.dataset(Examples.of(features, np.ones(len(features), np.int64))), [np.arange(len(features))]
        )
        releases = AttackedStudy(settings, task, population, 1).run(seed)
        # The constant comes first. The other records move it alone.
        sums.append(np.array([release.total[1:] / settings.privacy.expected_batch_size for release in releases]))
    public = (settings.privacy.expected_batch_size, rate)
    name = f"Wardround, {records} or {records + 1} records, divided by {public[0]:g}"
    return judged(name, ratios(np.array(sums), public, public), inside, rate, divisors=[public[0], public[0]])


def _settings(batch: float, rate: float) -> StudySettings:
    limit = {"level": "instance", "definition": "classical", "epsilon": 50.0, "delta": DELTA}
    return StudySettings.model_validate(
        {
            "training": {
                "task": "last-layer",
                "task_parameters": {"features": LAW["features"], "classes": 2, "bound": LAW["length"]},
                "algorithm": "fedsgd",
                "local_steps": 1,
                "optimiser": {"name": "plain", "learning_rate": LAW["learning_rate"]},
            },
            "privacy": {
                "scheme": "parallel",
                "limits": [limit],
                "clip_norm": LAW["clip_norm"],
                "client_clip_norm": None,
                "noise_multiplier": LAW["noise_multiplier"],
                "sampling_rate": rate,
                "expected_batch_size": batch,
                "client_sampling_rate": 1.0,
                "expected_clients": 1.0,
                "max_steps": LAW["steps"],
                "classical_order": 8.0,
                "bayesian": None,
                "disclosure": "plain",
                "histogram_noise": None,
                "accounting_sample": None,
                "masking": None,
            },
            "schedule": {"min_clients": 1, "round_deadline_seconds": 600.0},
            "beyond_bounds": True,
        }
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, required=True, help="of the environment with Opacus")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args(arguments)
    logging.getLogger("study_protocol.randomness.source").setLevel(logging.ERROR)
    inside = np.random.default_rng(chosen.seed).random(CANARIES) < 0.5
    rows = [opacus(chosen.python, records, inside) for records in (100, 105)]
    rows.append(ours(100, inside))
    chosen.out.write_text(json.dumps({"law": dict(LAW), "seed": chosen.seed, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
