"""How tight each ε is, against dp-accounting and Opacus in one run: python -m
research.benchmarks.accounting_tightness"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from accounting import (
    AveragedAccountant,
    BayesianAccountant,
    BayesianSpec,
    ClassicalAccountant,
    EstimateSpec,
    epsilon_from_moments,
    log_moment,
)
from research.accuracy.gradient_norms import FloatArray, GradientNormRun, clipped_norms

# noise multiplier, sampling rate, steps, delta
WORKLOADS = [
    (1.1, 256 / 60000, 14062, 1e-5),
    (0.7, 512 / 50000, 10000, 1e-5),
    (1.0, 0.1, 300, 1e-3),
    (2.0, 0.01, 300, 1e-5),
    (4.0, 1.0, 100, 1e-6),
]
ORDERS = np.unique(np.concatenate([np.geomspace(0.25, 64, 40), np.arange(1.0, 13.0)]))


def dp_accounting_epsilon(kind: str, sigma: float, rate: float, steps: int, delta: float) -> float:
    """Google's accountants at their defaults."""
    import dp_accounting
    from dp_accounting import pld, rdp

    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
    account = pld.PLDAccountant() if kind == "pld" else rdp.RdpAccountant()
    return float(account.compose(event, steps).get_epsilon(delta))


def opacus_epsilon(kind: str, sigma: float, rate: float, steps: int, delta: float) -> float:
    """Opacus's accountants at their defaults; NaN where one of them cannot."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import PRVAccountant, RDPAccountant

        account = PRVAccountant() if kind == "prv" else RDPAccountant()
        account.history = [(sigma, rate, steps)]
        try:
            return float(account.get_epsilon(delta))
        except (ValueError, RuntimeError, OverflowError):
            return float("nan")


def ours(method: str, sigma: float, rate: float, steps: int, delta: float) -> float:
    """Our classical accountant."""
    account = ClassicalAccountant(delta=delta, method="pld" if method == "pld" else "rdp")
    account.step(noise_multiplier=sigma, sampling_rate=rate, count=steps)
    return account.epsilon()


def classical_row(*workload: Any) -> dict[str, float]:
    """Every classical number for one workload."""
    return {
        "ours, PLD": ours("pld", *workload),
        "dp-accounting, PLD": dp_accounting_epsilon("pld", *workload),
        "Opacus, PRV": opacus_epsilon("prv", *workload),
        "ours, RDP": ours("rdp", *workload),
        "dp-accounting, RDP": dp_accounting_epsilon("rdp", *workload),
        "Opacus, RDP": opacus_epsilon("rdp", *workload),
    }


def bayesian(run: GradientNormRun, norms: FloatArray, **settings: Any) -> float:
    """The Bayesian accountant along one path, read once at the end."""
    checkpoints = {"checkpoints": 1} if settings.get("composition") == "running" else {}
    spec = BayesianSpec(
        orders=ORDERS,
        delta=run.delta,
        estimator_failure_probability=run.estimator_failure_probability,
        max_steps=run.steps,
        **checkpoints,
        **settings,
    )
    account = BayesianAccountant(spec)
    for distances in norms:
        account.step(
            distances,
            noise_std=run.noise_multiplier * run.clip_norm,
            sampling_rate=run.sampling_rate,
            max_distance=run.clip_norm,
        )
    return account.epsilon()


def averaged(run: GradientNormRun, norms: FloatArray) -> float:
    """The averaged classical bound."""
    spec = EstimateSpec(delta=run.delta, estimator_failure_probability=run.estimator_failure_probability)
    account = AveragedAccountant(spec, members=norms.shape[1], max_ratio=1 / run.noise_multiplier)
    for distances in norms:
        account.step(
            distances,
            noise_std=run.noise_multiplier * run.clip_norm,
            sampling_rate=run.sampling_rate,
            max_distance=run.clip_norm,
        )
    return account.epsilon()


def individual(run: GradientNormRun, norms: FloatArray, share: float, order: float) -> float:
    """The bound, fixed beforehand, under which this share of the records would have stayed to the end."""
    spent = sum(
        np.asarray(log_moment(order, d, noise_std=run.noise_multiplier, sampling_rate=run.sampling_rate))
        for d in norms / run.clip_norm
    )
    moment = float(np.quantile(spent, share, method="higher"))
    return epsilon_from_moments(order, moment, run.delta)[0]


def definitions(run: GradientNormRun, members: FloatArray, held_out: FloatArray) -> dict[str, float]:
    """Every definition on one path of real gradient norms."""
    workload = (run.noise_multiplier, run.sampling_rate, run.steps, run.delta)
    rows: dict[str, Callable[[], float]] = {
        f"individual, order {order:g}, {share:.0%} stay": lambda order=order, share=share: individual(
            run, members, share, order
        )
        for order in (4.3, 8.0)
        for share in (0.5, 0.95, 1.0)
    } | {
        "bayesian, Hölder, Student t": lambda: bayesian(run, members, estimator="student-t", composition="holder"),
        "bayesian, Hölder, betting": lambda: bayesian(run, members, estimator="betting", composition="holder"),
        "bayesian, running, Student t": lambda: bayesian(run, members, estimator="student-t", composition="running"),
        "bayesian, running, betting": lambda: bayesian(run, members, estimator="betting", composition="running"),
        "bayesian, averaged, betting": lambda: averaged(run, members),
        "certified, running, betting, adaptive": lambda: bayesian(
            run, held_out, estimator="betting", composition="running", adversary="adaptive", sample="held-out"
        ),
    }
    return classical_row(*workload) | {name: row() for name, row in rows.items()}


def main() -> None:
    """Print both tables and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("research/benchmarks/results/accounting_tightness.json"))
    arguments = parser.parse_args()
    run = GradientNormRun()
    everybody = clipped_norms(run, 0, accounting_sample=True)
    result = {
        "versions": {name: version(name) for name in ("dp-accounting", "opacus", "numpy", "scipy")},
        "workloads": [
            {"noise multiplier": w[0], "sampling rate": w[1], "steps": w[2], "delta": w[3]} | classical_row(*w)
            for w in WORKLOADS
        ],
        "gradients": {"settings": run.__dict__}
        | definitions(run, everybody[:, : run.records], everybody[:, run.records :]),
    }
    for row in result["workloads"]:
        print("  ".join(f"{name} {value:.5g}" for name, value in row.items()))
    for name, value in result["gradients"].items():
        print(f"{name:40} {value}")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
