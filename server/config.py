"""The coordinator's settings: one class, read once from the environment, every name checked.

A mistyped name is refused at the start, because a setting that is silently ignored is a setting that lies.
Any setting may come from a file instead (`WARDROUND_DATABASE_PASSWORD_FILE=/run/secrets/database_password`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_core import ErrorDetails
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from server.single_sign_on.settings import SingleSignOnSettings
from study_protocol.wire.variables import PREFIX, read_variables
from study_protocol.wire.wrong_entries import as_words

DRIVERS = ("sqlite", "postgresql+psycopg")
_BUCKET = re.compile(r"[A-Za-z0-9._-]+")
_SSO_PREFIX = f"{PREFIX}SSO_"
_ADDRESS = re.compile(r"[!-~]*")


class SettingsError(Exception):
    """The environment does not describe a coordinator. The text names every setting that is wrong, no value."""


class Settings(BaseModel):
    """The settings of a coordinator process.

    home                   folder of the embedded database, the signing key and the blobs
    blobs                  models and updates: a folder, or s3://bucket/prefix. `blobs` under `home` when empty
    blobs_endpoint         address of the object store, where it is not AWS's own: https://…
    blobs_region           of the bucket
    blobs_access_key_id, blobs_secret_access_key  for the object store. S3's own names and files when empty
    blobs_cache            folder for copies of objects. `cache` under `home` when empty
    blobs_cache_bytes      most that the copies take
    signing_key_path       the signing key's file, where several coordinators share one. Under `home` when empty
    database_url           `sqlite:///…` or `postgresql+psycopg://…`. SQLite under `home` when empty
    database_password      put into `database_url` when that has none
    origin                 the public origin that clients sign their requests for, for example https://study.example.org
    worker                 move rounds on inside `wardround serve`
    bind_models            new studies name every released model in their ledger, which hospitals of a version before
                           this one cannot read. false: for studies with such hospitals
    lease_seconds          how long a study waits for a killed worker before another takes over
    body_limit_bytes       most bytes of a JSON body
    model_limit_bytes      most bytes of an initial model
    body_idle_seconds      longest silence inside a request body
    body_least_rate        least bytes per second of a request body, measured after the first `body_idle_seconds`
    watch_seconds          how often one process looks for news for all its waiting clients
    long_poll_seconds      longest wait of one assignment request
    event_stream_seconds   longest life of one event stream. Browsers come back by themselves
    metrics_host           address of the listener of Prometheus' metrics, apart from the API's
    metrics_port           its port. Without one there is no such listener
    traces                 send OpenTelemetry's traces to where the variables `OTEL_…` say
    sso_issuer             address of the identity provider where people log in. Without it there are keys only
    sso_grants             file that maps the provider's groups to roles
    sso_session_minutes    how long a login lasts. A changed group counts at the next login
    sso_client_id, sso_client_secret, sso_device_client_id, sso_scopes, sso_groups_claim, sso_clock_skew_seconds
                           as in `SingleSignOnSettings`
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    home: Path = Path(".wardround")
    blobs: str = ""
    blobs_endpoint: str = ""
    blobs_region: str = ""
    blobs_access_key_id: SecretStr | None = None
    blobs_secret_access_key: SecretStr | None = None
    blobs_cache: Path | None = None
    blobs_cache_bytes: int = Field(default=10 << 30, ge=1 << 20)
    signing_key_path: Path | None = None
    database_url: str = ""
    database_password: SecretStr | None = None
    origin: str = "http://127.0.0.1:8000"
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    worker: bool = True
    bind_models: bool = True
    lease_seconds: float = Field(default=5.0, gt=0, le=3600, allow_inf_nan=False)
    log_level: str = Field(default="INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$")
    body_limit_bytes: int = Field(default=1 << 20, ge=1024)
    model_limit_bytes: int = Field(default=4 << 30, ge=1024)
    body_idle_seconds: float = Field(default=20.0, gt=0, allow_inf_nan=False)
    body_least_rate: int = Field(default=1024, ge=0)
    watch_seconds: float = Field(default=0.2, gt=0, le=5, allow_inf_nan=False)
    long_poll_seconds: float = Field(default=25.0, ge=0, le=55, allow_inf_nan=False)
    event_stream_seconds: float = Field(default=300.0, ge=0, allow_inf_nan=False)
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = Field(default=None, ge=0, le=65535)
    traces: bool = False
    sso_issuer: str = ""
    sso_grants: Path | None = None
    sso_session_minutes: int = Field(default=60, ge=5, le=480)
    sso_client_id: str = ""
    sso_client_secret: SecretStr | None = None
    sso_device_client_id: str = ""
    sso_scopes: str = ""
    sso_groups_claim: str = "groups"
    sso_clock_skew_seconds: int = 60

    @field_validator("origin")
    @classmethod
    def _is_an_origin(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or f"{parts.scheme}://{parts.netloc}" != value:
            raise ValueError("an origin is scheme://host[:port], without a path or a trailing slash")
        return value

    @field_validator("blobs")
    @classmethod
    def _is_a_folder_or_a_bucket(cls, value: str) -> str:
        parts = urlsplit(value)
        if "://" in value and not (parts.scheme == "s3" and _BUCKET.fullmatch(parts.netloc)):
            raise ValueError("write a folder, s3://bucket or s3://bucket/prefix")
        return value

    @field_validator("blobs_endpoint")
    @classmethod
    def _is_encrypted(cls, value: str) -> str:
        parts = urlsplit(value)
        on_this_machine = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
        if value and not (parts.scheme == "https" and parts.hostname) and not on_this_machine:
            raise ValueError("write https://…: http is taken for a store on this machine only")
        # The store's library ends the process over what no address holds.
        try:
            usable = _ADDRESS.fullmatch(value) is not None and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ValueError("write no spaces, and a port from 1 to 65535")
        return value

    @field_validator("database_url")
    @classmethod
    def _names_its_driver(cls, value: str) -> str:
        if value == "":
            return value
        try:
            url = make_url(value)
        except ArgumentError as error:
            raise ValueError("not a database URL") from error
        if url.drivername not in DRIVERS:
            raise ValueError(f"write the driver: one of {', '.join(DRIVERS)}")
        if url.drivername == "sqlite" and (url.database or ":memory:").startswith((":memory:", "file:")):
            raise ValueError(
                "SQLite needs a file, or the ledger is lost with the process: sqlite:////path/wardround.db"
            )
        return value

    def database(self) -> URL:
        """Return the address of the tables, with the password filled in."""
        embedded = URL.create("sqlite", database=str(self.home / "wardround.db"))
        url = make_url(self.database_url) if self.database_url else embedded
        if self.database_password is not None and url.password is None:
            url = url.set(password=self.database_password.get_secret_value())
        return url

    def single_sign_on(self) -> SingleSignOnSettings | None:
        """Return the settings of the identity provider, or None without one.

        Raises:
            SettingsError: they do not fit together, or are out of range. The text names every setting that is wrong.
        """
        if not self.sso_issuer:
            fields = type(self).model_fields.items()
            if any(name.startswith("sso_") and getattr(self, name) != field.default for name, field in fields):
                raise SettingsError(f"{_SSO_PREFIX}ISSUER is missing: it is the identity provider's address")
            return None
        problems = self._problems_of_logins()
        try:
            provider_settings = {name: getattr(self, f"sso_{name}") for name in SingleSignOnSettings.model_fields}
            settings = SingleSignOnSettings(**provider_settings)
        except ValidationError as error:
            raise SettingsError("; ".join((*problems, *map(_in_words, error.errors(include_input=False))))) from error
        if problems:
            raise SettingsError("; ".join(problems))
        return settings

    def _problems_of_logins(self) -> list[str]:
        """Return what is wrong beside the provider's own settings."""
        problems: list[str] = []
        origin = urlsplit(self.origin)
        if origin.scheme != "https" and origin.hostname not in ("127.0.0.1", "::1", "localhost"):
            problems.append(f"{PREFIX}ORIGIN has to begin with https:// where people log in: cookies need it")
        if self.sso_grants is None:
            problems.append(f"{_SSO_PREFIX}GRANTS is missing: it is the file that maps groups to roles")
        return problems


def _in_words(problem: ErrorDetails) -> str:
    return f"{_SSO_PREFIX}{str(problem['loc'][0]).upper()}: {as_words(problem['msg'])}"


def load(environment: Mapping[str, str], **overrides: Any) -> Settings:
    """Load settings from WARDROUND_* names, each possibly as NAME_FILE. `overrides` (command-line options) win.

    Raises:
        SettingsError: unknown names (with the nearest valid one), both NAME and NAME_FILE, an unreadable
            file, or a value out of range.
    """
    # All errors at once: an operator who starts a container mends them in one go.
    variables, problems = read_variables(environment, Settings.model_fields, Settings.model_fields)
    values: dict[str, Any] = variables | {name: value for name, value in overrides.items() if value is not None}
    try:
        settings = None if problems else Settings(**values)
    except ValidationError as error:
        # Without the input: it may be a password.
        wrong = error.errors(include_input=False)
        problems += [f"{PREFIX}{str(e['loc'][0]).upper()}: {as_words(e['msg'])}" for e in wrong]
        settings = None
    if settings is None:
        raise SettingsError("; ".join(problems))
    settings.single_sign_on()
    return settings
