"""Coverage of 95 % intervals from 10 sets of records: python -m research.synthesis.coverage 500 5000 1.0 10000.

Arguments: runs, patients, ε (δ = 1e-5) and rows of a set. In each run other patients come from one population, answer
with other noise, and 10 sets are made. The target is the population's parameter: proportions of the population, and the
coefficients by which its outcome was drawn.
"""

import json
import sys

import numpy as np
from numpy.typing import NDArray

from accounting.accountants.profile import mu_from_epsilon
from research.synthesis.judge import Hospitals
from study_protocol.study.synthesis import Synthesis
from synthesis.chain import follow
from synthesis.sets import combined, sets_of

SETS = 10
COLUMNS = [
    {"column": "age", "edges": [40, 50, 60, 70, 80]},
    {"column": "sex", "categories": ["female", "male"]},
    {"column": "weight", "edges": [60, 75, 90]},
    {"column": "smokes", "categories": ["never", "past", "now"]},
    {"column": "diabetes", "categories": ["no", "yes"]},
    {"column": "died", "categories": ["no", "yes"]},
]
CELLS = np.array([6, 2, 4, 3, 2, 2])
AGE, SEX, WEIGHT, SMOKES, DIABETES, DIED = range(6)
COEFFICIENTS = np.array([-2.2, 0.3, 0.4, 0.25, 0.5, 0.8])
PROPORTIONS = {
    "died": lambda r: r[:, DIED] == 1,
    "male": lambda r: r[:, SEX] == 1,
    "smokes now": lambda r: r[:, SMOKES] == 2,
    "70 or older": lambda r: r[:, AGE] >= 4,
    "80 or older": lambda r: r[:, AGE] == 5,
    "diabetes and died": lambda r: (r[:, DIABETES] == 1) & (r[:, DIED] == 1),
    "male and smoked": lambda r: (r[:, SEX] == 1) & (r[:, SMOKES] > 0),
    "80 or older with diabetes": lambda r: (r[:, AGE] == 5) & (r[:, DIABETES] == 1),
}


def patients(count: int, random: np.random.Generator) -> NDArray[np.int64]:
    z = random.normal(size=count)

    def bell(load: float, shift: NDArray[np.float64], cells: int) -> NDArray[np.int64]:
        value = load * z + shift + np.sqrt(1 - load**2) * random.normal(size=count)
        return np.clip(np.floor((value + 2) / 4 * cells), 0, cells - 1).astype(np.int64)

    def chance(logit: NDArray[np.float64]) -> NDArray[np.int64]:
        return (random.random(count) < 1 / (1 + np.exp(-logit))).astype(np.int64)

    sex = (random.random(count) < 0.45).astype(np.int64)
    age, weight = bell(0.6, np.zeros(count), 6), bell(0.4, 0.3 * sex, 4)
    smokes = (random.random(count) < 0.25 + 0.1 * sex).astype(np.int64) + (random.random(count) < 0.1)
    diabetes = chance(0.5 * z - 2.2)
    inputs = np.stack([np.ones(count), age, sex, weight, smokes, diabetes], axis=1)
    return np.stack([age, sex, weight, smokes, diabetes, chance(inputs @ COEFFICIENTS)], axis=1)


def estimates(records: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of complete records, as of a person who leaves out what is missing or other."""
    complete = records[(records < CELLS).all(axis=1)]
    shares = [float(np.mean(holds(complete))) for holds in PROPORTIONS.values()]
    kinds, counts = np.unique(complete, axis=0, return_counts=True)
    inputs, died, beta = np.column_stack([np.ones(len(kinds)), kinds[:, :DIED]]), kinds[:, DIED], np.zeros(6)
    for _ in range(12):
        chance = 1 / (1 + np.exp(-inputs @ beta))
        curvature = (inputs * (counts * chance * (1 - chance))[:, None]).T @ inputs
        beta = beta + np.linalg.solve(curvature, inputs.T @ (counts * (died - chance)))
    return np.array([*shares, *beta])


def main(runs: int, count: int, epsilon: float, rows: int) -> None:
    section = Synthesis.model_validate(
        {"columns": COLUMNS, "outcome": "died", "allowance": mu_from_epsilon(epsilon, 1e-5) ** 2, "rows": rows}
    )
    truth = estimates(patients(1_000_000, np.random.default_rng(1)))
    truth[len(PROPORTIONS) :] = COEFFICIENTS
    held, widths = [], []
    for run in range(runs):
        codes = patients(count, np.random.default_rng([2, run]))
        hospitals = Hospitals(codes, np.random.default_rng([3, run]), {})
        hospitals.ask(section)
        chain = follow(section, hospitals.answered.get)
        interval = combined([estimates(records) for records in sets_of(section, chain, range(1, SETS + 1))])
        held.append((interval.low <= truth) & (truth <= interval.high))
        widths.append(interval.high - interval.low)
        if (run + 1) % 50 == 0 or run + 1 == runs:
            show(count, epsilon, rows, np.array(held), np.array(widths))


def show(count: int, epsilon: float, rows: int, held: NDArray[np.bool_], widths: NDArray[np.float64]) -> None:
    names = [*PROPORTIONS, "intercept", "age", "sex", "weight", "smokes", "diabetes"]
    covered, split = held.mean(axis=0), len(PROPORTIONS)
    found = {
        "runs": len(held),
        "patients": count,
        "epsilon": epsilon,
        "rows": rows,
        "proportions": round(float(covered[:split].mean()), 4),
        "coefficients": round(float(covered[split:].mean()), 4),
        "each": dict(zip(names, covered.round(3).tolist(), strict=True)),
        "mean width": dict(zip(names, widths.mean(axis=0).round(4).tolist(), strict=True)),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
