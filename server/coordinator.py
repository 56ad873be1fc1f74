"""Puts a coordinator together from its settings."""

from __future__ import annotations

import logging
import resource
from pathlib import Path

from sqlalchemy import URL, Dialect

from server.config import Settings, SettingsError
from server.db.blobs import Blobs, StoreAway, StoreUnusable
from server.db.file_blobs import FileBlobs
from server.db.schema import Migrated, SchemaOutdated, migrate, require_current
from server.db.session import Database, keep_private
from server.observation.observer import ProcessObserver
from server.services.coordinator import Coordinator
from server.signing_key import create_signing_key, load_signing_key
from server.single_sign_on.errors import SingleSignOnMisconfigured
from server.single_sign_on.grants import GroupGrant, load_group_grants
from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.randomness.source import AddressedCoins, SecureRandomness

_OLDEST_POSTGRESQL = (15,)
logger = logging.getLogger("wardround.blobs")


def allow_many_files() -> None:
    """As many open files as the system lets this process have: a sum has one of every client open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # macOS says infinity and takes no more than this.
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 10_240)) if hard < 0 else hard, hard))


def open_blobs(settings: Settings) -> Blobs:
    """Return the store that the settings name. Raises StoreUnusable."""
    if not settings.blobs.startswith("s3://"):
        return FileBlobs(Path(settings.blobs) if settings.blobs else settings.home / "blobs")
    try:
        # Only who keeps objects needs its libraries.
        from server.db.object_blobs import ObjectBlobs, open_store
    except ImportError as error:
        raise StoreUnusable("an object store needs more packages: pip install 'wardround[objects]'") from error
    key_id, secret = settings.blobs_access_key_id, settings.blobs_secret_access_key
    store = open_store(
        settings.blobs,
        endpoint=settings.blobs_endpoint,
        region=settings.blobs_region,
        key_id="" if key_id is None else key_id.get_secret_value(),
        secret="" if secret is None else secret.get_secret_value(),
    )
    return ObjectBlobs(store, settings.blobs_cache or settings.home / "cache", settings.blobs_cache_bytes)


def prepare(settings: Settings) -> Migrated:
    """Make the folder, the signing key and the tables, as `wardround migrate` does. Repeatable."""
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    # One that was there before, as a container's volume is.
    keep_private(settings.home, 0o700)
    if settings.signing_key_path is None:
        create_signing_key(settings.home)
    database = Database(settings.database())
    try:
        return migrate(database.engine)
    finally:
        database.dispose()


def _require_a_file(url: URL) -> None:
    """Raises SchemaOutdated where SQLite would have to make its file: a command in another folder looks like that."""
    if url.database is not None and url.get_backend_name() == "sqlite" and not Path(url.database).exists():
        raise SchemaOutdated(
            f"there is no database at {Path(url.database).absolute()}: run `wardround migrate`, or set WARDROUND_HOME "
            "(or WARDROUND_DATABASE_URL) to where it is"
        )


def open_coordinator(settings: Settings) -> Coordinator:
    """Connect to the database, open the blobs and the signing key under `settings.home`.

    Raises:
        SchemaOutdated: the migrations have not been run.
        SigningKeyUnusable: there is no usable key.
        SettingsError: traces are wanted without the packages for them, or the file that maps groups to roles cannot be
            used.
        StoreUnusable: the object store refuses to work for this coordinator.
    """
    allow_many_files()
    observer = _observer(settings)
    database = Database(settings.database(), observer=observer)
    _require_a_file(settings.database())
    # Before anything is opened for writing: an older program must not work on newer tables, nor the other way round.
    require_current(database.engine)
    _warn_of_an_old_server(database.engine.dialect)
    blobs = open_blobs(settings)
    try:
        blobs.check()
    except StoreAway as error:
        # It may come back. Until then `readyz` says no.
        logger.warning("%s", error)
    # Draws come from the operating system. Only simulations are given a seeded source.
    randomness = SecureRandomness()
    return Coordinator(
        database=database,
        blobs=blobs,
        coins=AddressedCoins(randomness),
        noise=DiscreteGaussianNoise(randomness),
        signer=load_signing_key(settings.home, settings.signing_key_path),
        origin=settings.origin,
        binds_models=settings.bind_models,
        group_grants=_group_grants(settings),
        observer=observer,
    )


def _group_grants(settings: Settings) -> tuple[GroupGrant, ...]:
    if settings.sso_grants is None:
        return ()
    try:
        return load_group_grants(settings.sso_grants)
    except SingleSignOnMisconfigured as error:
        raise SettingsError(f"WARDROUND_SSO_GRANTS: {error}") from error


def _warn_of_an_old_server(dialect: Dialect) -> None:
    version = dialect.server_version_info or ()
    if dialect.name == "postgresql" and version < _OLDEST_POSTGRESQL:
        words = (".".join(map(str, version)), _OLDEST_POSTGRESQL[0])
        logger.warning("PostgreSQL %s is older than %d, the oldest that was ever tried", *words)


def _observer(settings: Settings) -> ProcessObserver:
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
    return ProcessObserver(instruments, spans)
