"""The mean of released models: post-processing, so it costs no privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from client_sdk.protocol.study.model_file import ModelMetadata
from client_sdk.protocol.wire.tensor_files import encode_model
from client_sdk.protocol.wire.tensors import Array, TensorError, metadata_in, require_finite, spec_of


def average_models(models: Sequence[Path | bytes]) -> bytes:
    """One model whose every parameter is the mean over `models`: released files of one study, or their bytes.

    The noise of single rounds partly cancels in it. What was released is known already: the mean costs no privacy.
    The result is a safetensors file, which says of which rounds it is the mean.

    Raises:
        ValueError: no model is given.
        TensorError: one is malformed, not finite, of another study, or has other names, shapes or types than the first.
        OSError: a file cannot be read.
    """
    if not models:
        raise ValueError("give at least one released model to average")
    files = [model if isinstance(model, bytes) else model.read_bytes() for model in models]
    arrays = [_arrays(file) for file in files]
    spec = spec_of(arrays[0])
    for number, other in enumerate(arrays, start=1):
        if spec_of(other) != spec:
            raise TensorError("wrong-shape", f"model {number} is not of one study with the first: average such only")
    # Summed as float64 and rounded once.
    mean: dict[str, Array] = {
        name: np.mean([array[name] for array in arrays], axis=0, dtype=np.float64).astype(dtype)
        for name, (_, dtype) in spec.items()
    }
    return encode_model(mean, _metadata([ModelMetadata.within(metadata_in(file)) for file in files]))


def _arrays(data: bytes) -> dict[str, Array]:
    try:
        arrays: dict[str, Array] = load(data)
    except (SafetensorError, ValueError) as error:
        raise TensorError("malformed", "this is no released model: give its .safetensors file") from error
    for name, array in arrays.items():
        require_finite(name, array)
    return arrays


def _metadata(said: Sequence[ModelMetadata | None]) -> Mapping[str, str]:
    known = [one for one in said if one is not None]
    if not known:
        return {}
    newest = max(known, key=lambda one: one.round)
    # Nobody knows of what a file without a word is. Two studies of equal settings cost the ε of both.
    same = {(one.study, one.settings_sha256) for one in known}
    if len(known) < len(said) or len(same) > 1:
        raise TensorError("wrong-metadata", "the models are not all of one study: average such only")
    if len(said) == 1:
        return newest.header()
    # Which rounds count how much in a mean of means, no file could say.
    if any(one.mean_of for one in known):
        raise TensorError("wrong-metadata", "one of the models is a mean already: average released models themselves")
    return newest.model_copy(update={"mean_of": tuple(sorted(one.round for one in known))}).header()
