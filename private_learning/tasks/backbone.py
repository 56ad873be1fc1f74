"""Public weights out of a file of this machine: verified by their digest, put into a model by their names."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from private_learning.errors import ConfigurationError
from private_learning.tasks.backbone_file import BackboneFile, ProgramFile
from study_protocol.study.bounds import MAX_WEIGHT
from study_protocol.study.model_file import ADAPTED_FROM
from study_protocol.wire.tensors import TensorError, metadata_in

_LOG = logging.getLogger(__name__)


def verified_bytes(file: BackboneFile | None, sha256: str, *, program: bool = False) -> bytes:
    """Return the bytes of the file that the study names.

    program  the study runs the file on the records, which a person here must have allowed. Otherwise it holds weights.

    Raises:
        ConfigurationError: no file is given, or one of the other kind. It cannot be read, or it is another one.
    """
    if file is None or isinstance(file, ProgramFile) != program:
        need = "public weights from a file" if not program else "a program, an ONNX file that is run on the records,"
        option, value = ("--backbone-program", "ProgramFile(path)") if program else ("--backbone", "path")
        raise ConfigurationError(
            f"this study needs {need} with SHA-256 {sha256}: get it from the study lead, and give it "
            f"with {option} FILE (from Python: backbone={value}). Wardround downloads nothing"
        )
    path = file.path if isinstance(file, ProgramFile) else file
    try:
        # Read once: what is hashed is what is used.
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"backbone {path} cannot be read: {error.strerror or error}") from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != sha256:
        raise ConfigurationError(
            f"backbone {path} is not the file that the study names: its SHA-256 is {digest}, the study's is {sha256}"
        )
    return data


def tensors_in(data: bytes) -> dict[str, Tensor]:
    """Return name -> tensor of a safetensors file.

    Raises:
        ConfigurationError: it is none, or holds complex numbers, NaN, an infinity or a number beyond ±MAX_WEIGHT. Or it
            is a model that was adapted to a hospital's own patients, which is not public.
    """
    try:
        tensors, header = load(data), metadata_in(data)
    except (SafetensorError, TensorError, KeyError, ValueError) as error:
        raise ConfigurationError(
            "the backbone is no safetensors file: pickled weights (.pt, .pth, .bin) can run code and are not read. "
            "Convert them with safetensors.torch.save_file"
        ) from error
    if header.get(ADAPTED_FROM):
        raise ConfigurationError(
            "the backbone is a model that was adapted to a hospital's own patients without noise: it must stay there"
        )
    for name, tensor in tensors.items():
        if tensor.is_complex():
            raise ConfigurationError(f"the backbone's tensor {name!r} holds complex numbers, which no task takes")
        # Numbers of all types become weights. For small types PyTorch has no absolute values.
        numbers = tensor if tensor.is_floating_point() and tensor.itemsize > 1 else tensor.double()
        # Written so that NaN does not pass.
        if tensor.numel() and not float(numbers.abs().max()) <= MAX_WEIGHT:
            raise ConfigurationError(f"the backbone's tensor {name!r} holds NaN or a number beyond ±{MAX_WEIGHT:g}")
    return tensors


def place(model: nn.Module, tensors: Mapping[str, Tensor], begun: Collection[str], head: Collection[str]) -> None:
    """Put tensors into the parameters and buffers of their names, in place.

    begun  parameters that are trained, which keep the task's first weights where the file has none
    head   those among them that keep them also where the file has another shape: it was made for other classes

    Raises:
        ConfigurationError: a tensor has another shape, and the text names both shapes. Or the file lacks a parameter
        that
            is not trained.
    """
    state: dict[str, Tensor] = dict(model.named_parameters()) | dict(model.named_buffers())
    with torch.no_grad():
        for name, tensor in tensors.items():
            target = state.get(name)
            if target is not None and target.shape == tensor.shape:
                target.copy_(tensor)
            elif target is not None and name not in head:
                raise ConfigurationError(
                    f"the backbone's tensor {name!r} has shape {tuple(tensor.shape)}, and the task's model needs "
                    f"{tuple(target.shape)}: the task's parameters are for another network"
                )
    # Once, under its first name, as `named_parameters` lists it.
    settled = {*begun, *tensors}
    missing = [name for name, _ in model.named_parameters() if name not in settled]
    if missing:
        raise ConfigurationError(
            f"the backbone has no tensor {missing[0]!r}{_and_others(len(missing) - 1)}, which the study does not train"
            f": its names begin with {', '.join(map(repr, sorted(tensors)[:3]))}"
        )
    unused = tensors.keys() - state.keys()
    if unused:
        _LOG.info("%d of %d tensors of the backbone are not in the task's model", len(unused), len(tensors))


def _and_others(count: int) -> str:
    return "" if count == 0 else f" and lacks {count} more"
