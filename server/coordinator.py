"""Puts a coordinator together from its settings."""

from __future__ import annotations

from client_sdk.protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from client_sdk.protocol.randomness.source import AddressedCoins, SecureRandomness
from server.config import Settings, SettingsError
from server.db.blobs import FileBlobs
from server.db.schema import migrate, require_current
from server.db.session import Database, keep_private
from server.observation.observer import Observer
from server.services.coordinator import Coordinator
from server.signing_key import create_signing_key, load_signing_key


def prepare(settings: Settings) -> None:
    """What `wardround migrate` does: the folder, the signing key, the tables. Repeatable."""
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    # One that was there before, as a container's volume is.
    keep_private(settings.home, 0o700)
    create_signing_key(settings.home)
    database = Database(settings.database())
    try:
        migrate(database.engine)
    finally:
        database.dispose()


def open_coordinator(settings: Settings) -> Coordinator:
    """Connect to the database, open the blobs and the signing key under `settings.home`.

    Raises:
        SchemaOutdated: the migrations have not been run.
        SigningKeyUnusable: there is no usable key.
        SettingsError: traces are wanted, and the packages for them are not installed.
    """
    observer = _observer(settings)
    database = Database(settings.database(), observer=observer)
    # Before anything is opened for writing: an older program must not work on newer tables, nor the other way round.
    require_current(database.engine)
    # Asks the operating system; only simulations are given a seeded one.
    randomness = SecureRandomness()
    return Coordinator(
        database=database,
        blobs=FileBlobs(settings.home / "blobs"),
        coins=AddressedCoins(randomness),
        noise=DiscreteGaussianNoise(randomness),
        signer=load_signing_key(settings.home),
        origin=settings.origin,
        observer=observer,
    )


def _observer(settings: Settings) -> Observer:
    # Imported only where they are wanted: traces are an extra, and neither is needed to serve.
    instruments = spans = None
    if settings.metrics_port is not None:
        from server.observation.instruments import Instruments

        instruments = Instruments()
    if settings.traces:
        try:
            from server.observation.spans import exported_spans
        except ModuleNotFoundError as error:
            raise SettingsError("WARDROUND_TRACES needs more packages: install 'wardround[traces]'") from error
        spans = exported_spans()
    return Observer(instruments, spans)
