"""Tables I, II and IV: MNIST, clients protected by central noise, one gradient of a linear map a round."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial

from client_sdk.protocol.randomness.source import SeededRandomness
from experiments.tables.catalogue import Entry
from experiments.tables.dealing import SPLITS, deal
from experiments.tables.features import Digits, digits
from experiments.tables.federated import Clients, Settings, Trained, accuracy, train
from experiments.tables.lines import EACH, INSTANCE_DELTA, LINES, Line, chosen, noise_for
from experiments.tables.readings import Release, readings
from experiments.tables.result import Row

_MANY = 10_000
_FOUND = "`python -m experiments.tables.choose`, on the last 10,000 training images, which it does not train on"


def measure(line: Line, seeds: Sequence[int]) -> Row:
    """One line, every seed with a split and noise of its own, judged by the test images. Raises DataMissing."""
    logging.getLogger("client_sdk").setLevel(logging.ERROR)
    began, settings = time.monotonic(), chosen(line)
    noise, data = noise_for(line, settings.rounds), digits(settings.kept)
    shares, plain, norms = [], [], []
    for seed in seeds:
        trained = _trained(line, settings, data, noise, seed)
        shares.append(accuracy(trained.weights, data.test_inputs, data.test_labels))
        norms.append(trained.norms)
        # Ten thousand clients differ little from seed to seed.
        if line.clients < _MANY or seed == seeds[0]:
            without = _trained(line, settings, data, 0.0, seed)
            plain.append(accuracy(without.weights, data.test_inputs, data.test_labels))
    copies = line.clients * EACH // len(data.labels)
    release = Release(settings, noise, EACH, copies, line.delta, INSTANCE_DELTA)
    return Row(
        table=line.table,
        name=line.name,
        data="MNIST",
        clients=line.clients,
        papers=line.papers,
        split=SPLITS[line.split],
        seeds=tuple(seeds),
        accuracies=shares,
        without_noise=plain,
        spent=readings(release, norms),
        settings={**asdict(settings), "noise_multiplier": noise, "records of a client": EACH, "copies": copies},
        found_by=_FOUND,
        goal=line.goal,
        notes=_notes(line),
        seconds=time.monotonic() - began,
    )


def _trained(line: Line, settings: Settings, data: Digits, noise: float, seed: int) -> Trained:
    clients = Clients(data.inputs, data.labels, deal(data.labels, line.clients, EACH, line.split, seed))
    return train(clients, settings, noise, SeededRandomness(seed, allow_insecure=True))


def _notes(line: Line) -> tuple[str, ...]:
    if line.against == "BDP":
        return ("Held in the worst case at the ε that the papers' Bayesian column has.",)
    return ()


def _entry(line: Line) -> Entry:
    run: Callable[[Sequence[int]], Row] = partial(measure, line)
    selectors = {"clients": str(line.clients), "epsilon": f"{line.epsilon:g}", "data": "mnist"}
    return Entry(line.table, line.name, line.papers, run, selectors)


ENTRIES = tuple(_entry(line) for line in LINES)
