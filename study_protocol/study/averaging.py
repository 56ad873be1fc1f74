"""The mean of released models: post-processing, so it costs no privacy.

Its bytes are the same on every processor: products and sums are separate float64 operations, in the order of rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import accumulate, pairwise, repeat
from operator import mul
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from study_protocol.study.model_file import ModelMetadata
from study_protocol.study.training import Averaging
from study_protocol.wire.tensor_files import (
    Arrays,
    Piece,
    ReadableTensors,
    TensorFile,
    encode_pieces,
    file_order,
    gather_tensors,
    runs,
)
from study_protocol.wire.tensors import Array, Spec, TensorError, metadata_in, require_finite

# Opens one model. It is opened once for each block of numbers, so that neither files nor memory grow with the rounds.
Opener = Callable[[], AbstractContextManager[ReadableTensors]]
_BLOCK = 1 << 22
# Beside the newest model's, a weight below this is lost in a float32.
_MIN_WEIGHT = 1e-8


def averaged_rounds(averaging: Averaging, released: Sequence[int]) -> dict[int, float]:
    """Return the released rounds that the study's result averages, ascending, with their weights, which add up to 1.

    >>> averaged_rounds(Averaging(name="tail", share=0.5), [1, 2, 4, 5])
    {4: 0.5, 5: 0.5}
    >>> averaged_rounds(Averaging(name="exponential", decay=0.5), [1, 2])
    {1: 0.3333333333333333, 2: 0.6666666666666666}

    Args:
        released: the rounds whose models were released, ascending. A failed round is not among them.
    """
    if averaging.name == "tail":
        # Of a decimal share the product may lie a last bit above the whole number that is meant.
        newest = released[-max(1, math.ceil(round(averaging.share * len(released), 9))) :]
        return {number: 1 / len(newest) for number in newest}
    # Products and not powers, whose last bit depends on the machine's library.
    powers = accumulate(repeat(averaging.decay, max(0, len(released) - 1)), mul, initial=1.0)
    weights = dict(zip(reversed(released), powers, strict=False))
    significant = {number: weight for number, weight in sorted(weights.items()) if weight > _MIN_WEIGHT}
    total = math.fsum(significant.values())
    return {number: weight / total for number, weight in significant.items()}


def average_models(models: Sequence[Path | bytes], weights: Sequence[float] | None = None) -> bytes:
    """Return one model whose every parameter is the mean over `models`: released files of one study, or their bytes.

    The noise of single rounds partly cancels in it. The models are released already, so that the mean costs no privacy.
    The result is a safetensors file, which names its rounds and their weights.

    Args:
        weights: one for each model, all above 0. They are divided by their sum. None: equal ones.

    Raises:
        ValueError: no model is given, or weights that are not one for each, finite and above 0.
        TensorError: one is malformed, not finite, of another study, or has other names, shapes or types than the first.
        OSError: a file cannot be read.
    """
    if not models:
        raise ValueError("give at least one released model to average")
    openers, metadata = zip(*map(opener, models), strict=True)
    return b"".join(mean_file(openers, metadata, weights))


def opener(model: Path | bytes) -> tuple[Opener, ModelMetadata | None]:
    """Return how a model is opened, and what its file says of itself. Raises TensorError, OSError."""
    if isinstance(model, bytes):
        return partial(nullcontext, Arrays(_arrays(model))), ModelMetadata.within(metadata_in(model))
    with model.open("rb") as file:
        return partial(_opened, model), ModelMetadata.within(TensorFile(file.fileno()).metadata)


def mean_file(
    models: Sequence[Opener], metadata: Sequence[ModelMetadata | None], weights: Sequence[float] | None
) -> Iterator[bytes | memoryview]:
    """Yield the bytes of the mean's file. Arguments and errors as of `average_models`, metadata: of each model."""
    shares = None if weights is None else _shares(weights, len(models))
    header = _metadata(metadata, shares)
    rounds = [item.round for item in metadata if item is not None]
    if len(rounds) == len(models):
        order = sorted(range(len(models)), key=rounds.__getitem__)
        models, shares = [models[place] for place in order], shares and tuple(shares[place] for place in order)
    with models[0]() as first:
        spec = first.spec
    yield from encode_pieces(spec, _mean_pieces(spec, models, shares), header)


def mean_weights(models: Sequence[Mapping[str, Array]], shares: Sequence[float] | None = None) -> dict[str, Array]:
    """Return the mean of every parameter, summed as float64 and rounded once to the parameter's type.

    Args:
        shares: one for each model, which add up to 1. None: equal ones.

    Raises:
        TensorError: names, shapes or types differ from the first model's.
    """
    arrays = list(map(Arrays, models))
    spec = arrays[0].spec
    return gather_tensors(spec, _mean_pieces(spec, [partial(nullcontext, model) for model in arrays], shares))


def _mean_pieces(spec: Spec, models: Sequence[Opener], shares: Sequence[float] | None) -> Iterator[Piece]:
    for block in _blocks(spec):
        totals = [np.zeros(stop - start) for _, start, stop in block]
        for number, (model, share) in enumerate(zip(models, shares or repeat(1.0), strict=False), start=1):
            with model() as tensors:
                if tensors.spec != spec:
                    reason = f"model {number} is not of one study with the first: average such only"
                    raise TensorError("wrong-shape", reason)
                for total, run in zip(totals, block, strict=True):
                    total += tensors.piece(*run).astype(np.float64) * share
        for total, (name, start, _) in zip(totals, block, strict=True):
            yield name, start, total if shares else total / len(models)


def _blocks(spec: Spec) -> Iterator[list[tuple[str, int, int]]]:
    """Yield (name, start, stop) of all numbers in a file's order, about `_BLOCK` numbers together."""
    block, numbers = list[tuple[str, int, int]](), 0
    for name in file_order(spec):
        for run in runs(name, math.prod(spec[name][0])):
            block.append(run)
            numbers += run[2] - run[1]
            if numbers >= _BLOCK:
                yield block
                block, numbers = [], 0
    # A model without numbers has no block. Its files must be of one form, too.
    yield block


def _shares(weights: Sequence[float], models: int) -> tuple[float, ...] | None:
    """Return weights that add up to 1, or None if they are equal. Raises ValueError."""
    if len(weights) != models or not all(0 < weight < math.inf for weight in weights):
        raise ValueError(f"give one weight above 0 for each of the {models} models")
    total = math.fsum(weights)
    return None if len(set(weights)) == 1 else tuple(weight / total for weight in weights)


@contextmanager
def _opened(path: Path) -> Generator[ReadableTensors]:
    with path.open("rb") as file:
        yield TensorFile(file.fileno())


def _arrays(data: bytes) -> dict[str, Array]:
    try:
        arrays: dict[str, Array] = load(data)
    except (SafetensorError, ValueError) as error:
        raise TensorError("malformed", "this is no released model: give its .safetensors file") from error
    for name, array in arrays.items():
        require_finite(name, array)
    return arrays


def _metadata(metadata: Sequence[ModelMetadata | None], shares: Sequence[float] | None) -> Mapping[str, str]:
    present = list(filter(None, metadata))
    if not present:
        return {}
    for item in present:
        item.require_not_adapted()
    newest = max(present, key=lambda item: item.round)
    # The origin of a file without metadata is unknown. Two studies of equal settings cost the ε of both.
    origins = {(item.study, item.settings_sha256) for item in present}
    if len(present) < len(metadata) or len(origins) > 1:
        raise TensorError("wrong-metadata", "the models are not all of one study: average such only")
    if len(metadata) == 1:
        return newest.header()
    order = _order(present)
    of_mean = {"mean_of": tuple(present[place].round for place in order)}
    weighted = {} if shares is None else {"mean_weights": tuple(shares[place] for place in order)}
    return newest.model_copy(update={**of_mean, **weighted}).header()


def _order(metadata: Sequence[ModelMetadata]) -> list[int]:
    """Return the places of models by round. Raises TensorError: one is a mean, or they are not all of one study."""
    # No file could say how much each round counts in a mean of means.
    if any(item.mean_of for item in metadata):
        raise TensorError("wrong-metadata", "one of the models is a mean already: average released models themselves")
    order = sorted(range(len(metadata)), key=lambda place: metadata[place].round)
    # A ledger only grows. Two runs of a study have one name, and cost the ε of both.
    settled = [(metadata[place].round, metadata[place].ledger_entries) for place in order]
    if any(after[0] <= before[0] or after[1] <= before[1] for before, after in pairwise(settled)):
        raise TensorError("wrong-metadata", "the models are not all of one study, or one is there twice")
    return order
