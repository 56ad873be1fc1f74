"""Settings of tables I, II and IV, found without the test images: python -m research.tables.choose

The first 50,000 training images are dealt to 100 clients, who stand for as many as a line has: the laws of their
gradients are alike, and the noise is scaled to the line's. Candidates are drawn at random from the ranges below, tried
once, and the best are tried on three more seeds. The other 10,000 training images judge.
PneumoniaMNIST has validation records of its own.

The search reads the images without noise: like every search of this kind, it is outside of ε.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from research.tables.dealing import deal
from research.tables.features import Digits, held_out
from research.tables.federated import FederatedClients, FederatedSettings, accuracy, train
from research.tables.lines import CHOSEN_SETTINGS, INSTANCE_DELTA, LINES, PNEUMONIA, Line, noise_for
from research.tables.pictures import COMPONENTS, pneumonia
from research.tables.readings import NoisedRelease, epsilon_of_records
from study_protocol.randomness.source import SeededRandomness

STANDING = 100
CANDIDATES, FINALISTS, MORE_SEEDS = 40, 8, 3
# Not those that the page reports.
_FIRST_SEED = 1000
_KEPT = {100: (48, 64, 96, 128, 200), 1000: (96, 128, 200, 300), 10_000: (128, 200, 300)}
_ROUNDS = {100: (4, 6, 8, 12, 16), 1000: (6, 8, 12, 16), 10_000: (6, 8, 12)}
_CLIPS = {"iid": ((0.15, 0.2, 0.3), (0.01, 0.02, 0.05, 0.1)), "shards": ((0.2, 0.3, 0.5), (0.05, 0.1, 0.2))}
_RATES, _MOMENTA, _AVERAGED = (20.0, 40.0, 80.0, 160.0, 320.0), (0.0, 0.3, 0.5), (0.0, 0.5)
# Where records are protected too: their own clip, smaller ones of clients, longer steps. √2 would clip no record.
_RECORD_CLIPS = (0.1, 0.2, 0.3, 0.5, 1.0)
_CLIPS_OF_BOTH = {"iid": ((0.05, 0.1, 0.2), (0.02, 0.05, 0.1)), "shards": ((0.1, 0.2, 0.3), (0.05, 0.1, 0.2))}
_RATES_OF_BOTH = (40.0, 80.0, 160.0, 320.0, 640.0)


def candidates(line: Line, count: int) -> list[FederatedSettings]:
    """So many different settings, the same for the same line."""
    draw = np.random.default_rng([ord(letter) for letter in line.key])
    settings_seen: dict[FederatedSettings, None] = {}
    while len(settings_seen) < count:
        draws: list[Any] = [choices[draw.integers(len(choices))] for choices in _ranges(line)]
        if _is_allowed(line, choices := FederatedSettings(*draws)):
            settings_seen[choices] = None
    return list(settings_seen)


def _ranges(line: Line) -> tuple[tuple[Any, ...], ...]:
    """In the order of the fields of `Settings`."""
    is_central = line.instance is None
    first, last = (_CLIPS if is_central else _CLIPS_OF_BOTH)[line.split]
    steps = (_RATES if is_central else _RATES_OF_BOTH, _MOMENTA, _AVERAGED)
    if line.data != "MNIST":
        return ((COMPONENTS,), _ROUNDS[line.clients], first, last, *steps, (None,), (2,))
    return (_KEPT[line.clients], _ROUNDS[line.clients], first, last, *steps, (None,) if is_central else _RECORD_CLIPS)


def _is_allowed(line: Line, settings: FederatedSettings) -> bool:
    """Whether a record's ε stays within the line's, with as many records as the papers' clients have."""
    if line.instance is None:
        return True
    noise = noise_for(line, settings.rounds)
    release = NoisedRelease(settings, noise, line.each, 1, line.delta, INSTANCE_DELTA)
    return epsilon_of_records(release) <= line.instance


def judge(line: Line, settings: FederatedSettings, seed: int) -> float:
    """Accuracy on the images that judge."""
    data = _held_out(line.data, settings.kept)
    rows = deal(data.labels, STANDING, len(data.labels) // STANDING, line.split, seed)
    # In the clients' order, so that a client's images lie together.
    order = rows.ravel()
    clients = FederatedClients(data.inputs[order], data.labels[order], np.arange(len(order)).reshape(rows.shape))
    randomness = SeededRandomness(seed, allow_insecure=True)
    noise = noise_for(line, settings.rounds)
    trained = train(clients, settings, noise, randomness, stand_for=line.clients)
    return accuracy(trained.weights, data.test_inputs, data.test_labels)


def search(line: Line) -> dict[str, Any]:
    """The best settings, what they reached, and what the others did."""
    first = sorted(((judge(line, each, _FIRST_SEED), each) for each in candidates(line, CANDIDATES)), key=_reached)
    scored: list[tuple[float, FederatedSettings]] = []
    for once, each in first[-FINALISTS:]:
        more = [judge(line, each, _FIRST_SEED + 1 + seed) for seed in range(MORE_SEEDS)]
        scored.append((float(np.mean([once, *more])), each))
    reached, best = max(scored, key=_reached)
    return {
        "settings": asdict(best),
        "validation": reached,
        "candidates": CANDIDATES,
        "first try, all candidates": [round(score, 4) for score, _ in first],
        "finalists": [round(score, 4) for score, _ in scored],
    }


def _reached(scored: tuple[float, FederatedSettings]) -> float:
    return scored[0]


@lru_cache(maxsize=2)
def _held_out(data: str, components: int) -> Digits:
    return held_out(components) if data == "MNIST" else pneumonia(held_out=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Search for the lines that are named, or all of them; each replaces its settings in the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", nargs="*", help="such as II/100/iid/8; all of them if left out")
    parser.add_argument("--out", type=Path, default=CHOSEN_SETTINGS)
    options = parser.parse_args(arguments)
    for package in ("study_protocol", "private_learning", "client_sdk"):
        logging.getLogger(package).setLevel(logging.ERROR)
    lines = [line for line in (*LINES, PNEUMONIA) if not options.lines or line.key in options.lines]
    for line in lines:
        best = search(line)
        recorded = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
        options.out.write_text(json.dumps(recorded | {line.key: best}, indent=1) + "\n", encoding="utf-8")
        print(f"{line.key}: {100 * best['validation']:.2f} with {best['settings']}", flush=True)


if __name__ == "__main__":
    main()
