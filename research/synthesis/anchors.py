"""Other synthesisers beside three masked questions, on the same columns and records, in one run.

    python -m research.synthesis.anchors adult --epsilon 1 --seeds 1 --ways mbi-mst=/envs/mbi/bin/python

Each library lives in an environment of its own, because their pins exclude one another:

    python -m venv mbi && mbi/bin/pip install jax networkx matplotlib scikit-learn optax
    git clone https://github.com/ryan112358/mbi   # PYTHONPATH=mbi/src MBI_MECHANISMS=mbi/mechanisms
    python -m venv dpmm && dpmm/bin/pip install torch==2.13.0 dpmm==0.1.9
    python -m venv smartnoise && smartnoise/bin/pip install torch==2.13.0 smartnoise-synth==1.0.8

They see all records at once and trust the place that holds them. Prints one row of a Markdown table for each way and
seed as soon as it is measured.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from research.synthesis.data import SPLITS, Cells, Split
from research.synthesis.judge import asked, classified, mean_variation
from synthesis.model.make import make_records

OURS, WORKER = "three questions", Path(__file__).with_name("anchor_worker.py")


def made_by(way: str, python: str, split: Split, epsilon: float, seed: int, limit: float) -> Cells:
    """Records of another library. Raises subprocess.CalledProcessError, or TimeoutExpired after `limit` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "codes.npz"), Path(folder, "records.npy")
        np.savez(source, codes=split.train, sizes=np.array(split.sizes))
        command = [python, WORKER, way, source, target, str(epsilon), str(seed)]
        environment = {key: value for key, value in os.environ.items() if key != "WARDROUND_DATA"}
        subprocess.run(command, check=True, timeout=limit, env=environment, stdout=subprocess.DEVNULL)
        return np.load(target)


def made_by_questions(split: Split, epsilon: float, seed: int) -> Cells:
    return make_records(asked(split, epsilon, seed), 100_000, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--ways", nargs="*", default=[], help="WAY=PYTHON of its environment")
    parser.add_argument("--limit", type=float, default=7200, help="seconds for one way and seed")
    chosen = parser.parse_args()
    ways = {OURS: ""} | dict(each.split("=", 1) for each in chosen.ways)
    print("| table | way | ε | seed | total variation | accuracy | AUC | boosting AUC | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for seed in range(chosen.seeds):
        split = SPLITS[chosen.table](seed)
        for way, python in ways.items():
            begun = time.perf_counter()
            try:
                if way == OURS:
                    records = made_by_questions(split, chosen.epsilon, seed)
                else:
                    records = made_by(way, python, split, chosen.epsilon, seed, chosen.limit)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failure:
                print(
                    f"| {chosen.table} | {way} | {chosen.epsilon} | {seed} | {type(failure).__name__} | | | | |",
                    flush=True,
                )
                continue
            seconds = time.perf_counter() - begun
            figures = classified(split, records)
            scores = " | ".join(f"{figures[name]:.3f}" for name in ("accuracy", "AUC", "boosting AUC"))
            cells = f"{mean_variation(split.sizes, split.train, records):.4f} | {scores}"
            print(f"| {chosen.table} | {way} | {chosen.epsilon:g} | {seed} | {cells} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
