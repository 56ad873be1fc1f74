"""The settings of the hospital's and the operator's side, read once from the environment."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from client_sdk.errors import ConfigurationError

PREFIX = "WARDROUND_"
# Names that the coordinator reads, or the tests. A machine may be both, so they pass.
_COORDINATORS = (
    *("HOME", "DATABASE_URL", "DATABASE_PASSWORD", "ORIGIN", "HOST", "PORT", "WORKER", "LEASE_SECONDS", "LOG_LEVEL"),
    "BIND_MODELS",
    *("BODY_LIMIT_BYTES", "MODEL_LIMIT_BYTES", "BODY_IDLE_SECONDS", "BODY_LEAST_RATE"),
    *("WATCH_SECONDS", "LONG_POLL_SECONDS", "EVENT_STREAM_SECONDS"),
    *("BLOBS", "BLOBS_ENDPOINT", "BLOBS_REGION", "BLOBS_ACCESS_KEY_ID", "BLOBS_SECRET_ACCESS_KEY"),
    *("BLOBS_CACHE", "BLOBS_CACHE_BYTES", "SIGNING_KEY_PATH"),
    *("METRICS_HOST", "METRICS_PORT", "TRACES"),
)
FOREIGN_NAMES = frozenset(
    {PREFIX + name + suffix for name in _COORDINATORS for suffix in ("", "_FILE")}
    | {PREFIX + name for name in ("DATA", "FAILPOINT", "FAILPOINT_LOG")}
)
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Connection(BaseModel):
    """How the coordinator is reached.

    url             where to connect to, for example https://study.example.org
    ca_file         PEM file of a private certificate authority, trusted beside the system's
    proxy           https proxy. None: HTTPS_PROXY and NO_PROXY of the environment decide
    allow_http      plain HTTP to a host that is not this machine. Requests are signed, but not secret
    connect_seconds, read_seconds   longest silence. A long poll may wait longer than read_seconds
    patience_seconds                how long after its first failure a request is repeated. Infinity: for ever
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    ca_file: Path | None = None
    proxy: SecretStr | None = None
    allow_http: bool = False
    connect_seconds: Seconds = 10.0
    read_seconds: Seconds = 60.0
    patience_seconds: Annotated[float, Field(ge=0)] = 60.0


class ClientSettings(BaseModel):
    """The variables that the commands read: WARDROUND_SERVER, WARDROUND_OPERATOR_KEY, WARDROUND_CLIENT_HOME,
    WARDROUND_CA_FILE, WARDROUND_ALLOW_HTTP. The key may come from the file WARDROUND_OPERATOR_KEY_FILE instead."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    server: str | None = None
    operator_key: SecretStr | None = None
    client_home: Path = Path("wardround-hospital")
    ca_file: Path | None = None
    allow_http: bool = False

    def connection(
        self, url: str | None = None, *, patience_seconds: float = 1.0, connect_seconds: float = 2.0
    ) -> Connection:
        """The connection to `url`, or to the server of the environment. By default that of a person who waits: a dead
        address is given up within five seconds.

        Raises:
            ConfigurationError: neither is given.
        """
        address = url or self.server
        if not address:
            raise ConfigurationError(f"which coordinator? Pass --server or set {PREFIX}SERVER")
        url = address.rstrip("/")
        return Connection(
            url=url,
            ca_file=self.ca_file,
            allow_http=self.allow_http,
            connect_seconds=connect_seconds,
            patience_seconds=patience_seconds,
        )


def load(environment: Mapping[str, str] | None = None) -> ClientSettings:
    """Settings from the environment. An empty value is as good as none.

    Raises:
        ConfigurationError: a name that does not exist (with the nearest one that does), a file that cannot be read, a
            key given twice, or a value that is none.
    """
    variables = os.environ if environment is None else environment
    _require_known_names(variables)
    values = {
        name: variables[PREFIX + name.upper()]
        for name in ClientSettings.model_fields
        if variables.get(PREFIX + name.upper())
    }
    key_file = variables.get(f"{PREFIX}OPERATOR_KEY_FILE")
    if key_file:
        if "operator_key" in values:
            raise ConfigurationError(f"{PREFIX}OPERATOR_KEY and {PREFIX}OPERATOR_KEY_FILE are both set: keep one")
        values["operator_key"] = read_secret(Path(key_file))
    try:
        return ClientSettings.model_validate(values)
    except ValueError as error:
        # The other fields take any text: nothing else can be wrong.
        raise ConfigurationError(f"{PREFIX}ALLOW_HTTP is true or false") from error


def _require_known_names(variables: Mapping[str, str]) -> None:
    """A setting that is silently ignored is a setting that lies."""
    setting_names = [f"{PREFIX}{name.upper()}" for name in ClientSettings.model_fields] + [f"{PREFIX}OPERATOR_KEY_FILE"]
    unknown = sorted(
        name for name in variables if name.startswith(PREFIX) and name not in {*setting_names, *FOREIGN_NAMES}
    )
    if unknown:
        nearest = [difflib.get_close_matches(name, setting_names, n=1, cutoff=0.0)[0] for name in unknown]
        wrong = "; ".join(
            f"{name} is unknown: did you mean {near}?" for name, near in zip(unknown, nearest, strict=True)
        )
        raise ConfigurationError(wrong)


def read_secret(path: Path) -> str:
    """The one line of a secret's file.

    Raises:
        ConfigurationError: it cannot be read or is empty.
    """
    try:
        secret = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigurationError(f"the file {path} cannot be read: {reason}") from error
    if not secret:
        raise ConfigurationError(f"the file {path} is empty")
    return secret
