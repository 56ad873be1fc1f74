"""Checkpoints: what is put in comes out, and files of other runs or damaged ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import ConfigurationError
from simulation import checkpoint
from simulation.backends.base import Loop
from simulation.checkpoint import SimulationCheckpoint, read, write
from simulation.engine import Engine
from tests.factories.settings import settings
from tests.simulation.test_engine import clients


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    kept, chosen = tmp_path / "kept", settings()
    Engine(chosen, clients(4), 5, Loop, kept=kept).run()
    others: list[dict[str, Any]] = [{"seed": 6}, {"population": clients(5)}, {"settings": settings(max_steps=2)}]
    for other in others:
        arguments: dict[str, Any] = {"settings": chosen, "population": clients(4), "seed": 5} | other
        with pytest.raises(ConfigurationError, match="of another simulation"):
            Engine(**arguments, backend=Loop, kept=kept).run()
    kept.write_bytes(kept.read_bytes()[:-9])
    with pytest.raises(ConfigurationError, match="damaged: move it away"):
        Engine(chosen, clients(4), 5, Loop, kept=kept).run()


def test_a_checkpoint_holds_what_was_put_into_it(tmp_path: Path) -> None:
    said = {"coordinator": {"version": 3}, "reported": [1], "rounds": []}
    arrays = {"weights/a": np.arange(3, dtype=np.float32)}
    kept = checkpoint.SimulationCheckpoint(said, arrays, {2: checkpoint.Accounts(b"{}")})
    checkpoint.write(tmp_path / "kept", "me", kept)
    found = checkpoint.read(tmp_path / "kept", "me")
    assert found is not None
    assert found.said["coordinator"] == {"version": 3}
    assert found.arrays["weights/a"].tolist() == [0, 1, 2]
    assert found.accounts == {2: b"{}"}


def test_where_there_is_no_file_there_is_no_checkpoint(tmp_path: Path) -> None:
    assert checkpoint.read(tmp_path / "kept", "me") is None


def test_a_file_of_another_run_and_one_that_is_none_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    write(path, "me", SimulationCheckpoint({}, {}, {}))
    with pytest.raises(ConfigurationError, match="is of another simulation"):
        read(path, "you")
    for damaged in (b"", b"no tensors", path.read_bytes()[:-4]):
        path.write_bytes(damaged)
        with pytest.raises(ConfigurationError, match="no checkpoint of a simulation, or damaged"):
            read(path, "me")


def test_numbers_that_json_does_not_know_leave_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    write(path, "me", SimulationCheckpoint({"version": 3}, {}, {}))
    with pytest.raises(ValueError, match="JSON"):
        write(path, "me", SimulationCheckpoint({"version": float("nan")}, {}, {}))
    stored = read(path, "me")
    assert stored is not None
    assert stored.said["version"] == 3
