"""What the watched round knows by name: for each thing the places where it may stand; the first that is there is taken.

The same run measures the tree before and after modules move; whoever moves one adds its new place here.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

NAMES: dict[str, tuple[str, ...]] = {
    "Client": ("client_sdk.client:Client", "client_sdk.api.client:Client"),
    "Connection": ("client_sdk.config:Connection", "client_sdk.api.config:Connection"),
    "OperatorKey": (
        "client_sdk.credentials:OperatorKey",
        "client_sdk.api.credentials:OperatorKey",
        "client_sdk.api.credentials:OperatorCredentials",
        "client_sdk.api.attempts:OperatorKey",
        "client_sdk.api.client:OperatorKey",
    ),
    "Hospital": ("client_sdk.hospital:Hospital", "client_sdk.study.hospital:Hospital"),
    "SitePolicy": ("client_sdk.policy:SitePolicy", "client_sdk.guard.policy:SitePolicy"),
    "Table": ("private_learning.records:Table",),
    "load_task": ("private_learning.tasks:load",),
    "weights_of": (
        "client_sdk.weights:weights_of",
        "private_learning.training.weights:weights_of",
        "private_learning.tasks.weights:weights_of",
        "private_learning.training.local:weights_of",
    ),
    "encode": ("study_protocol.tensors:encode", "study_protocol.wire.tensors:encode"),
    "StudySettings": (
        "study_protocol.settings:StudySettings",
        "study_protocol.study.settings:StudySettings",
    ),
    "StudyCreate": ("study_protocol.messages:StudyCreate", "study_protocol.study.messages:StudyCreate"),
    "InvitationCreate": (
        "study_protocol.messages:InvitationCreate",
        "study_protocol.study.messages:InvitationCreate",
    ),
    "OperatorKeyCreate": (
        "study_protocol.messages:OperatorKeyCreate",
        "study_protocol.study.messages:OperatorKeyCreate",
    ),
    "Settings": ("server.config:Settings",),
    "prepare": ("server.coordinator:prepare",),
    "open_coordinator": ("server.coordinator:open_coordinator",),
    "create_app": ("server.app:create_app",),
    "create_key": ("server.services.operators:create_key", "server.services.studies.operators:create_key"),
    "Worker": ("server.worker:Worker",),
    "RoundRow": ("server.db.tables:RoundRow",),
}
# The hospital's loop asks for its next assignment with this method of `Client`.
ASK = "assignment"
# Settings that were renamed: the second name is taken where the study's settings know it.
RENAMED = {
    "nominal_batch": "expected_batch_size",
    "horizon": "max_steps",
    "notion": "definition",
    "failure": "estimator_failure_probability",
    "panel": "accounting_sample",
}
# Files that wait for news or watch, for all requests alike: {what it is for: places where it may stand}.
ASIDE: dict[str, tuple[str, ...]] = {
    "the log of requests": ("server/telemetry.py",),
    "looks for news for whoever waits": ("server/api/watcher.py",),
    "what there is news of": ("server/services/events.py", "server/services/studies/events.py"),
    # Entered only because here the worker does not run inside the application, which therefore has nobody to wake.
    "puts the application together": ("server/app.py",),
}


class Stale(Exception):
    """Something that this script knows by name is no longer there: say its new name in the tables above."""


def named(what: str) -> Any:
    """The object of `NAMES`.

    Raises:
        Stale: it stands in none of the places.
    """
    for place in NAMES[what]:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except AttributeError:
            continue
        except ModuleNotFoundError as error:
            # A place that is not there is no error; one that cannot import what it needs is.
            if not module.startswith(error.name or "?"):
                raise
    raise Stale(f"{what} is in none of {', '.join(NAMES[what])}")


def left_aside(root: Path = ROOT) -> frozenset[str]:
    """The files of `ASIDE`.

    Raises:
        Stale: one of them stands in none of its places.
    """
    paths = {role: [place for place in places if (root / place).exists()] for role, places in ASIDE.items()}
    for role, places in paths.items():
        if not places:
            raise Stale(f"{role}: none of {', '.join(ASIDE[role])} is there")
    return frozenset(place for places in paths.values() for place in places)


def translated(values: Any, known: frozenset[str]) -> Any:
    """Settings under the names that `known` has."""
    if isinstance(values, list | tuple):
        return [translated(value, known) for value in values]
    if not isinstance(values, dict):
        return values
    renamed = {key: RENAMED.get(key, key) for key in values}
    return {(new if new in known else key): translated(values[key], known) for key, new in renamed.items()}
