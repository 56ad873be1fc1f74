"""Puts a coordinator together from its settings."""

from __future__ import annotations

from server.config import Settings
from server.services.ports import Coordinator


def open_coordinator(settings: Settings) -> Coordinator:
    """Connect to the database, open the blobs and the signing key under `settings.home`.

    Raises:
        SchemaOutdated: the migrations have not been run.
        SigningKeyMissing: `wardround migrate` has not made a key yet.
    """
    raise NotImplementedError
