"""Tables I to IV: clients protected by central noise, one gradient of a linear map a round."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np

from research.tables.catalogue import CatalogueEntry
from research.tables.dealing import SPLITS, deal
from research.tables.features import Digits, digits
from research.tables.federated import FederatedClients, FederatedSettings, Trained, accuracy, train
from research.tables.lines import APTOS, APTOS_BOTH, INSTANCE_DELTA, LINES, PNEUMONIA, Line, chosen_settings, noise_for
from research.tables.pictures import own_features, pneumonia
from research.tables.readings import NoisedRelease, readings
from research.tables.result import Row
from study_protocol.randomness.source import SeededRandomness

_LARGE_GROUP = 1000
_CHOOSE = "`python -m research.tables.choose`"
_RECORDED = {
    "MNIST": f"{_CHOOSE}, on the last 10,000 training images, which it does not train on",
    "PneumoniaMNIST": f"{_CHOOSE}, on the validation X-rays, which it does not train on",
    "APTOS": f"{_CHOOSE}, on PneumoniaMNIST: no picture of this folder was used",
}


def measure(line: Line, seeds: Sequence[int]) -> Row:
    """One line, every seed with a split and noise of its own, judged by the test records. Raises DataMissing."""
    settings = chosen_settings(line)
    return _measured(line, settings, digits(settings.kept) if line.data == "MNIST" else pneumonia(), seeds)


def measure_own(line: Line, folder: Path, program: Path | None, seeds: Sequence[int]) -> Row:
    """A line on a folder of a user's own, and a frozen network if one is given. Raises DataError."""
    data = own_features(folder, program)
    classes, kept = int(max(data.labels.max(), data.test_labels.max())) + 1, data.inputs.shape[1]
    return _measured(line, replace(chosen_settings(PNEUMONIA), classes=classes, kept=kept), data, seeds)


def _measured(line: Line, settings: FederatedSettings, data: Digits, seeds: Sequence[int]) -> Row:
    for package in ("study_protocol", "private_learning", "client_sdk"):
        logging.getLogger(package).setLevel(logging.ERROR)
    began, noise = time.monotonic(), noise_for(line, settings.rounds)
    shares, plain, norms = [], [], []
    for seed in seeds:
        trained = _trained(line, settings, data, noise, seed)
        shares.append(accuracy(trained.weights, data.test_inputs, data.test_labels))
        norms.append(trained.norms)
        # So many clients differ little from seed to seed.
        if line.clients < _LARGE_GROUP or seed == seeds[0]:
            without = _trained(line, settings, data, 0.0, seed)
            plain.append(accuracy(without.weights, data.test_inputs, data.test_labels))
    copies = -(-line.clients * line.each // len(data.labels))
    release = NoisedRelease(settings, noise, line.each, copies, line.delta, INSTANCE_DELTA)
    return Row(
        table=line.table,
        name=line.name,
        data=line.data,
        clients=line.clients,
        papers=line.papers,
        split=SPLITS[line.split],
        seeds=tuple(seeds),
        accuracies=shares,
        without_noise=plain,
        spent=readings(release, norms),
        settings={**asdict(settings), "noise_multiplier": noise, "records of a client": line.each, "copies": copies},
        found_by=_RECORDED[line.data],
        goal=line.goal,
        notes=_notes(line, data),
        seconds=time.monotonic() - began,
    )


def _trained(line: Line, settings: FederatedSettings, data: Digits, noise: float, seed: int) -> Trained:
    clients = FederatedClients(data.inputs, data.labels, deal(data.labels, line.clients, line.each, line.split, seed))
    return train(clients, settings, noise, SeededRandomness(seed, allow_insecure=True))


def _notes(line: Line, data: Digits) -> tuple[str, ...]:
    if line.data != "MNIST":
        commonest = float((data.test_labels == np.bincount(data.labels).argmax()).mean())
        return (f"Always naming the commonest class reaches {100 * commonest:.1f} %.",)
    if line.against == "BDP":
        return ("Held in the worst case at the ε that the papers' Bayesian column has.",)
    return ()


def _entry(line: Line) -> CatalogueEntry:
    run: Callable[[Sequence[int]], Row] = partial(measure, line)
    return CatalogueEntry(line.table, line.name, line.papers, run, _selectors(line))


def _own_entry(line: Line) -> CatalogueEntry:
    with_folder: Callable[[Path, Path | None, Sequence[int]], Row] = partial(measure_own, line)
    return CatalogueEntry(
        line.table, line.name, line.papers, None, _selectors(line), "needs the images of APTOS 2019", with_folder
    )


def _selectors(line: Line) -> dict[str, str]:
    return {"clients": str(line.clients), "epsilon": f"{line.epsilon:g}", "data": line.data.lower()}


_ALL = sorted((*LINES, PNEUMONIA), key=lambda line: line.table)
ENTRIES = (
    *(_entry(line) for line in _ALL if line.table < "III"),
    *(_own_entry(line) for line in APTOS),
    *(_entry(line) for line in _ALL if line.table >= "III"),
    _own_entry(APTOS_BOTH),
)
