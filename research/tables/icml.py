"""Table 1 of the ICML paper (in the thesis Table 5.2): one data holder, MNIST, Abalone, Adult."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

import numpy as np

from research.accuracy.accuracy_data import WORKLOADS
from research.bayesian import batch_clipped, central_inference, central_softmax, coverage
from research.bayesian.central_inference import noise_for
from research.bayesian.readings import NoisedSteps, as_printed, spent
from research.bayesian.survey_data import SurveySplit, abalone, adult
from research.tables.catalogue import CatalogueEntry
from research.tables.result import EpsilonReading, Papers, Row, read, write

DELTA = 1e-5
SOURCE = "Triastcyn & Faltings 2020, Table 1; thesis, Table 5.2"
SEARCH = "`python -m research.bayesian.inference_search {} --epsilon {}`, on training records held out from it"


def _papers(plain: float, private: float, classical: float, bayesian: float) -> Papers:
    accuracy = {"without privacy": plain, "DP": private, "BDP": private}
    return Papers(SOURCE, accuracy, {"DP": classical, "BDP": bayesian}, DELTA)


MNIST = _papers(99, 96, 2.18, 0.62)
ABALONE = _papers(77, 76, 7.6, 0.5)
ADULT = _papers(81, 81, 0.5, 0.16)
_INTERVAL_SEEDS = 5
_DIGITS = central_softmax.SoftmaxRecipe(60, 0.35, 256.0, 0.9)
_ANIMALS = central_inference.Recipe(12, 0.8, 20 / 3)
_PERSONS = central_inference.Recipe(25, 2.0, 1.2, 0.5, bound=13**0.5)


def digits(seeds: Sequence[int], epsilon: float = 0.62) -> Row:
    """A linear classifier of oriented gradients, full batches with momentum."""
    logging.getLogger("study_protocol.randomness.source").setLevel(logging.ERROR)
    begun, split = time.monotonic(), WORKLOADS["mnist"].split(0)
    noise, _ = noise_for(epsilon, DELTA, _DIGITS.charged)
    watched = list[central_softmax.Floats]()
    model = central_softmax.fitted(split.inputs, split.targets, _DIGITS, noise, seeds, watched)
    plain = central_softmax.fitted(split.inputs, split.targets, _DIGITS, None, [0])
    mechanism = NoisedSteps(_DIGITS.charged, 1.0, noise, _DIGITS.clip_norm, DELTA)
    return Row(
        table="ICML",
        name="MNIST at .62",
        data="MNIST, 60,000 and 10,000 images",
        papers=MNIST,
        split="the official test images, one data holder",
        seeds=list(seeds),
        accuracies=model.accuracies(split.test_inputs, split.test_targets),
        without_noise=plain.accuracies(split.test_inputs, split.test_targets),
        spent=spent(watched, mechanism),
        settings=asdict(_DIGITS) | {"noise_multiplier": noise, "features": "392 oriented gradients", "model": "linear"},
        found_by=SEARCH.format("mnist", epsilon),
        goal=96.0,
        seconds=time.monotonic() - begun,
    )


def _survey(
    name: str,
    load: Callable[[int], SurveySplit],
    papers: Papers,
    recipe: central_inference.Recipe,
    epsilon: float,
    goal: float,
) -> Callable[[Sequence[int]], Row]:
    def run(seeds: Sequence[int]) -> Row:
        logging.getLogger("study_protocol.randomness.source").setLevel(logging.ERROR)
        begun, splits = time.monotonic(), [load(seed) for seed in seeds]
        noise, _ = noise_for(epsilon, DELTA, recipe.charged)
        accuracies, plain, runs = list[float](), list[float](), list[central_inference.Floats]()
        for seed, split in zip(seeds, splits, strict=True):
            watched = list[central_inference.Floats]()
            private = central_inference.fitted(split.train, recipe, noise, seed, watched)
            accuracies.append(private.accuracy(split.test))
            plain.append(central_inference.fitted(split.train, recipe, None, seed).accuracy(split.test))
            runs.append(np.array(watched))
        train, test = len(splits[0].train), len(splits[0].test)
        return Row(
            table="ICML",
            name=f"{name} at {epsilon:g}".replace("0.", "."),
            data=f"{name}, {train:,} and {test:,} records",
            papers=papers,
            split="a fifth held out by each seed, one data holder",
            seeds=list(seeds),
            accuracies=accuracies,
            without_noise=plain,
            spent=spent(runs, NoisedSteps(recipe.charged, 1.0, noise, recipe.clip_norm, DELTA)),
            settings=asdict(recipe) | {"noise_multiplier": noise, "model": "bayesian-logistic-regression"},
            found_by=SEARCH.format(name.lower(), epsilon),
            goal=goal,
            notes=[_intervals(load, recipe, noise)],
            seconds=time.monotonic() - begun,
        )

    return run


def _intervals(load: Callable[[int], SurveySplit], recipe: central_inference.Recipe, noise: float) -> str:
    """What 90 % intervals of the posterior hold, in words."""
    intervals = coverage.measured([load(seed) for seed in range(_INTERVAL_SEEDS)], recipe, noise)
    return (
        f"90 % intervals of the posterior held the true score of {100 * intervals.exact:.1f} % of the held-out records "
        f"without noise. After the private run they held {100 * intervals.private:.1f} %, and "
        f"{100 * intervals.widened:.1f} % with the noise's public variance added. "
        f"Labels were drawn from a known model in {_INTERVAL_SEEDS} seeds."
    )


def main() -> None:
    """Count the intervals of the lines that have a posterior again: python -m research.tables.icml"""
    logging.getLogger("study_protocol.randomness.source").setLevel(logging.ERROR)
    row_by_name = {row.name: row for row in read() if row.table == "ICML"}
    for name, load, recipe, epsilon in _POSTERIORS:
        noise, _ = noise_for(epsilon, DELTA, recipe.charged)
        row = row_by_name[name]
        settings = {key: value for key, value in row.settings.items() if key != "coverage"}
        # The line's run was this one: same steps, same noise.
        if any(settings[key] != value for key, value in (asdict(recipe) | {"noise_multiplier": noise}).items()):
            raise ValueError(f"{name}: run the line again, its settings are others")
        write(replace(row, settings=settings, notes=[_intervals(load, recipe, noise)]))
        print(name, "counted again", flush=True)


def batch_clipped_digits(seeds: Sequence[int]) -> Row:
    """The papers' settings, whose clip is of the batch's gradient: one run, and both readings of its noise."""
    logging.getLogger("study_protocol.randomness.source").setLevel(logging.ERROR)
    begun, split, recipe = time.monotonic(), WORKLOADS["mnist"].split(0), batch_clipped.BatchClippedRecipe()
    runs = [batch_clipped.fitted(split.inputs, split.targets, recipe, seed) for seed in seeds]
    rate = recipe.batch / len(split.targets)
    steps = recipe.steps(len(split.targets))
    turned = NoisedSteps(steps, rate, recipe.noise_std / (2 * recipe.clip_norm), 2 * recipe.clip_norm, DELTA)
    records = NoisedSteps(steps, rate, recipe.noise_std / recipe.clip_norm, recipe.clip_norm, DELTA)
    printed = max(as_printed(distances, turned) for _, distances in runs)
    return Row(
        table="ICML",
        name="MNIST as the papers train it",
        data="MNIST, 60,000 and 10,000 images",
        papers=MNIST,
        split="the official test images, one data holder",
        seeds=list(seeds),
        accuracies=[batch_clipped.accuracy(weights, split.test_inputs, split.test_targets) for weights, _ in runs],
        spent=[
            EpsilonReading("worst case", "instance", turned.epsilon, DELTA, "a batch's clipped gradient moves by 2C"),
            EpsilonReading(
                "other reading", "instance", records.epsilon, DELTA, "if every record's gradient were clipped to C"
            ),
            EpsilonReading(
                "papers", "instance", batch_clipped.finite(printed), DELTA, f"Student t, {batch_clipped.SAMPLE} records"
            ),
        ],
        settings=asdict(recipe) | {"steps": steps, "features": "392 oriented gradients", "model": "linear"},
        found_by="the thesis, section 5.5.2 (batch, C, σ, epochs), learning rate and length of inputs by hand",
        notes=["The noise has standard deviation 2Cσ = .2 with σ = .1. It is .1 of the sensitivity 2C, or .2 of C."],
        seconds=time.monotonic() - begun,
    )


_POSTERIORS = (("Abalone at .2", abalone, _ANIMALS, 0.2), ("Adult at .1", adult, _PERSONS, 0.1))

ENTRIES = (
    CatalogueEntry("ICML", "MNIST at .62", MNIST, digits, {"data": "mnist", "epsilon": "0.62"}),
    CatalogueEntry(
        "ICML", "MNIST as the papers train it", MNIST, batch_clipped_digits, {"data": "mnist", "epsilon": "printed"}
    ),
    CatalogueEntry(
        "ICML",
        "Abalone at .2",
        ABALONE,
        _survey("Abalone", abalone, ABALONE, _ANIMALS, 0.2, 77.5),
        {"data": "abalone", "epsilon": "0.2"},
    ),
    CatalogueEntry(
        "ICML",
        "Adult at .1",
        ADULT,
        _survey("Adult", adult, ADULT, _PERSONS, 0.1, 84.0),
        {"data": "adult", "epsilon": "0.1"},
    ),
)


if __name__ == "__main__":
    main()
