"""The devices that a hospital names: one, several of a kind, or an automatic choice."""

from __future__ import annotations

import os

import torch

from private_learning.errors import ConfigurationError

AUTO, EVERY = "auto", "cuda:all"


def devices_of(setting: str) -> tuple[str, ...]:
    """Return devices of torch. The model lies on the first, and the passes of a step run on all of them.

    setting  "auto" for the first GPU, or the processor where there is none. "cuda:all" for every GPU. Otherwise a
             device of torch, or several of one kind with commas between, such as "cuda:0,cuda:1".

    Raises:
        ConfigurationError: PyTorch cannot use one of them here, kinds round differently, or one GPU stands there twice.
    """
    if setting == AUTO:
        return (_usable("cuda" if torch.cuda.is_available() else "cpu", setting),)
    if setting == EVERY:
        setting = ",".join(map("cuda:{}".format, range(torch.cuda.device_count()))) or "cuda"
    listed = tuple(_usable(device.strip(), setting) for device in setting.split(","))
    if len({torch.device(device).type for device in listed}) > 1:
        raise ConfigurationError(
            f"device {setting!r}: name devices of one kind. Others round differently, and a record's gradient would "
            "depend on where it is computed"
        )
    if "cpu" not in listed and len(set(listed)) < len(listed):
        raise ConfigurationError(f"device {setting!r}: one device stands there twice")
    return listed


def _usable(device: str, setting: str) -> str:
    if device.startswith("cuda"):
        # Read when CUDA starts: without it the same product may be added in another order.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    try:
        torch.zeros(1, device=device)
    # AssertionError: a PyTorch that was built without CUDA.
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(f"device {setting!r} cannot be used here: {reason}") from error
    return device
