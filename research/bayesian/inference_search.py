"""Settings of the ICML paper's table, found on training records that a run does not see.

python -m research.bayesian.inference_search mnist|abalone|adult --epsilon E

For every point of a grid the mean accuracy over seeds: for Abalone and Adult on a fifth of each seed's training
records, for MNIST on the last 10,000 of the 60,000 images with the noise of all of them. Prints the best lines; nothing
is written.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from research.accuracy.accuracy_data import WORKLOADS
from research.bayesian import central_softmax
from research.bayesian.central_inference import Recipe, fitted, noise_for
from research.bayesian.survey_data import SurveySplit, abalone, adult, validation

LOADERS: dict[str, Callable[[int], SurveySplit]] = {"abalone": abalone, "adult": adult}
DELTA = 1e-5
_HELD_OUT = 10_000
# Steps, clip norms, the way that all steps together go at most, momentum.
GRIDS = {
    "abalone": ((3, 5, 8, 12), (0.4, 0.8, 1.6), (16.0, 32.0, 64.0), (0.0, 0.5)),
    "adult": ((6, 10, 16, 25), (0.5, 1.0, 2.0), (30.0, 60.0, 120.0), (0.0, 0.5)),
}
# Adult: four words, three more and five bands of a person are 1, and the constant.
BOUNDS = {"abalone": None, "adult": 13**0.5}
# Steps, clip norms, learning rates, momentum, averaged.
MNIST = ((60,), (0.35,), (128.0, 256.0), (0.9, 0.95), (1, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=[*sorted(LOADERS), "mnist"])
    parser.add_argument("--epsilon", type=float, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    logging.getLogger("study_protocol.randomness.source").setLevel(logging.ERROR)
    trials = _digits if options.data == "mnist" else _surveys
    results = list(trials(options.data, options.epsilon, range(options.seeds)))
    for score, recipe in sorted(results, key=lambda each: -each[0])[:10]:
        print(f"{100 * score:.2f}  {recipe}", flush=True)


def _surveys(data: str, epsilon: float, seeds: range) -> Iterator[tuple[float, Any]]:
    splits = [validation(LOADERS[data](seed), seed) for seed in seeds]
    for steps, clip, distance, momentum in itertools.product(*GRIDS[data]):
        # How far all steps together may go at most, in clip norms, tells more than a learning rate by itself.
        rate = distance * (1 - momentum) / (steps * clip)
        recipe = Recipe(steps, clip, rate, momentum, bound=BOUNDS[data])
        noise, _ = noise_for(epsilon, DELTA, recipe.charged)
        yield (
            statistics.fmean(
                fitted(split.train, recipe, noise, seed).accuracy(split.test)
                for seed, split in zip(seeds, splits, strict=True)
            ),
            recipe,
        )


def _digits(data: str, epsilon: float, seeds: range) -> Iterator[tuple[float, Any]]:
    split = WORKLOADS[data].split(0)
    inputs, labels, training_size = split.inputs, split.targets, len(split.targets) - _HELD_OUT
    for steps, clip, rate, momentum, averaged in itertools.product(*MNIST):
        recipe = central_softmax.SoftmaxRecipe(steps, clip, rate, momentum, averaged)
        # Of the mean gradient over all images: fewer of them bear less of it.
        noise = noise_for(epsilon, DELTA, recipe.charged)[0] * training_size / len(labels)
        model = central_softmax.fitted(inputs[:training_size], labels[:training_size], recipe, noise, seeds)
        yield statistics.fmean(model.accuracies(inputs[training_size:], labels[training_size:])), recipe


if __name__ == "__main__":
    main()
