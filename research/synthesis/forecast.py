"""The forecast beside what is measured: python -m research.synthesis.forecast adult 1.0 5000 1.

Arguments: table, ε (δ = 1e-5), patients (0: all) and seeds. How closely simulated columns depend on one another was set
on Adult. All other tables were only looked at.
"""

import json
import sys

import numpy as np

from research.synthesis.data import SPLITS
from research.synthesis.judge import Hospitals, mean_variation, section_of
from synthesis.chain import follow
from synthesis.forecast import forecast
from synthesis.released import records_of


def main(name: str, epsilon: float, patients: int, seeds: int) -> None:
    measured, edges = [], []
    for seed in range(seeds):
        split = SPLITS[name](seed)
        order = np.random.default_rng(seed).permutation(len(split.train))
        codes, section = split.train[order[: patients or None]], section_of(split, epsilon)
        hospitals = Hospitals(codes, np.random.default_rng([1, seed]), {})
        hospitals.ask(section)
        chain = follow(section, hospitals.answered.get)
        measured.append(mean_variation(split.sizes, codes, records_of(section, chain)))
        edges.append(sum(len(question.cliques) for question in chain.questions[2:]))
    found, mean = forecast(section, len(codes)), float(np.mean(measured))
    shown = {
        "table": name,
        "epsilon": epsilon,
        "patients": found.patients,
        "measured": round(mean, 4),
        "forecast": round(found.variation, 4),
        "ratio": round(found.variation / mean, 3),
        "edges": [float(np.mean(edges)), found.edges],
    }
    print(json.dumps(shown), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
