"""The checkpoint of a simulation that was killed: everything that the next round depends on, in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from client_sdk.errors import ConfigurationError
from simulation.local_work import Accounts
from study_protocol.files.durable import write_durably
from study_protocol.wire.tensors import Array

_HEADER, _ACCOUNTS = "said", "accounts/"


@dataclass(frozen=True, repr=False)
class SimulationCheckpoint:
    """After a round.

    said      JSON: the coordinator's state, and what was shown of the rounds
    arrays    the coordinator's
    accounts  of the clients that keep any, by their places
    """

    said: Mapping[str, Any]
    arrays: Mapping[str, Array]
    accounts: Mapping[int, Accounts]


def write(path: Path, belonging: str, checkpoint: SimulationCheckpoint) -> None:
    """Durable when this returns. belonging: digest of everything that fixes the run.

    Raises:
        OSError: the disk is full or read-only. The file is as it was.
    """
    header = json.dumps({"belonging": belonging, **checkpoint.said}, allow_nan=False).encode()
    tensors = {_HEADER: np.frombuffer(header, np.uint8)}
    tensors |= {
        _ACCOUNTS + str(place): np.frombuffer(account, np.uint8) for place, account in checkpoint.accounts.items()
    }
    write_durably(path, save(tensors | {f"array/{name}": array for name, array in checkpoint.arrays.items()}))


def read(path: Path, belonging: str) -> SimulationCheckpoint | None:
    """The checkpoint in the file. None: there is no file.

    Raises:
        ConfigurationError: it is of another run, or damaged.
    """
    try:
        tensors = load(path.read_bytes())
        header = json.loads(tensors[_HEADER].tobytes())
    except FileNotFoundError:
        return None
    except (SafetensorError, ValueError, KeyError) as error:
        raise ConfigurationError(f"{path} is no checkpoint of a simulation, or damaged: move it away") from error
    if header["belonging"] != belonging:
        raise ConfigurationError(
            f"{path} is of another simulation: the settings, the records, their split, the seed or the backend have "
            "changed since. Name another folder, or move this file away"
        )
    arrays = {name.removeprefix("array/"): array for name, array in tensors.items() if name.startswith("array/")}
    accounts = {
        int(name.removeprefix(_ACCOUNTS)): Accounts(array.tobytes())
        for name, array in tensors.items()
        if name.startswith(_ACCOUNTS)
    }
    return SimulationCheckpoint(header, arrays, accounts)
