"""The devices that a hospital names: one, several of a kind, or whatever is there."""

from __future__ import annotations

import os

import torch

from private_learning.errors import ConfigurationError

AUTO, EVERY = "auto", "cuda:all"


def devices_of(named: str) -> tuple[str, ...]:
    """Devices of torch; the model lies on the first, and the passes of a step run on all of them.

    named  "auto": the first GPU, or the processor where there is none; "cuda:all": every GPU; a device of torch, or
           several of one kind with commas between, such as "cuda:0,cuda:1"

    Raises:
        ConfigurationError: PyTorch cannot use one of them here; kinds that round differently; one GPU twice.
    """
    if named == AUTO:
        return (_usable("cuda" if torch.cuda.is_available() else "cpu", named),)
    if named == EVERY:
        named = ",".join(f"cuda:{place}" for place in range(torch.cuda.device_count())) or "cuda"
    listed = tuple(_usable(device.strip(), named) for device in named.split(","))
    if len({torch.device(device).type for device in listed}) > 1:
        raise ConfigurationError(
            f"device {named!r}: name devices of one kind; others round differently, and a record's gradient would "
            "depend on where it is computed"
        )
    if "cpu" not in listed and len(set(listed)) < len(listed):
        raise ConfigurationError(f"device {named!r}: one device stands there twice")
    return listed


def _usable(one: str, named: str) -> str:
    if one.startswith("cuda"):
        # Read when CUDA starts: without it the same product may be added in another order.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        torch.zeros(1, device=one)
    # AssertionError: a PyTorch that was built without CUDA.
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(f"device {named!r} cannot be used here: {reason}") from error
    return one
