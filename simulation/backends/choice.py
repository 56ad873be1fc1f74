"""From a backend's name to the backend."""

from __future__ import annotations

import os
from functools import partial

from client_sdk.errors import ConfigurationError
from simulation.backends.base import Backend, Loop, OpenBackend
from simulation.backends.forked import Forked
from simulation.backends.ray import Ray
from simulation.backends.vectorised import Vectorised, reason_against
from simulation.local_work import LocalWork

# From so many clients on a linear model is worth its own way, whose bytes are not the service's.
MANY_CLIENTS = 200


def backend_called(name: str, workers: int | None = None, address: str | None = None) -> OpenBackend:
    """How a backend is opened. auto: vectorised for many linear clients, else forked (loop on Windows).

    address  of a running cluster, for the backend ray

    Raises:
        ConfigurationError: there is none of this name, `workers` is below 1, or another backend has no address.
    """
    if address is not None and name != "ray":
        raise ConfigurationError("--address is of a cluster of Ray: take --backend ray")
    if workers is not None and workers < 1:
        raise ConfigurationError("--workers is at least 1")
    backends: dict[str, OpenBackend] = {
        "auto": partial(_auto, workers=workers),
        "loop": Loop,
        "forked": partial(_forked, workers=workers),
        "ray": partial(Ray, workers=workers, address=address),
        "vectorised": Vectorised,
    }
    if name not in backends:
        raise ConfigurationError(f"there is no backend {name!r}. Backends are {', '.join(backends)}")
    return backends[name]


def quickest(work: LocalWork) -> Backend:
    """Return vectorised where the model allows it, else forked or, on Windows, loop.

    Bytes may be others than the service's.
    """
    return Vectorised(work) if reason_against(work) is None else _one_by_one(work)


def _auto(work: LocalWork, workers: int | None) -> Backend:
    if len(work.population) >= MANY_CLIENTS and reason_against(work) is None:
        return Vectorised(work)
    return _one_by_one(work, workers)


def _one_by_one(work: LocalWork, workers: int | None = None) -> Backend:
    """Return the backend of the service's bytes: forked, or loop where the system does not fork."""
    return Forked(work, workers) if hasattr(os, "fork") else Loop(work)


def _forked(work: LocalWork, workers: int | None) -> Backend:
    if not hasattr(os, "fork"):
        raise ConfigurationError("this system does not fork processes: take --backend loop")
    return Forked(work, workers)
