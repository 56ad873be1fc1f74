"""The settings of the hospital's and the operator's side, read once from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from client_sdk.errors import ConfigurationError

PREFIX = "WARDROUND_"
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Connection(BaseModel):
    """How the coordinator is reached.

    url             where to connect to, for example https://study.example.org
    ca_file         PEM file of a private certificate authority, trusted beside the system's
    proxy           https proxy; None: HTTPS_PROXY and NO_PROXY of the environment decide
    allow_http      plain HTTP to a host that is not this machine; requests are signed, but not secret
    connect_seconds, read_seconds   longest silence; a long poll may wait longer than read_seconds
    patience_seconds                how long a request is repeated before the error is passed on
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    ca_file: Path | None = None
    proxy: SecretStr | None = None
    allow_http: bool = False
    connect_seconds: Seconds = 10.0
    read_seconds: Seconds = 60.0
    patience_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 60.0


class ClientSettings(BaseModel):
    """What the commands read: WARDROUND_SERVER, WARDROUND_OPERATOR_KEY, WARDROUND_CLIENT_HOME, WARDROUND_CA_FILE,
    WARDROUND_ALLOW_HTTP. The key may come from the file WARDROUND_OPERATOR_KEY_FILE instead."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    server: str | None = None
    operator_key: SecretStr | None = None
    client_home: Path = Path("wardround-hospital")
    ca_file: Path | None = None
    allow_http: bool = False

    def connection(self, url: str | None = None, *, patience_seconds: float = 60.0) -> Connection:
        """The connection to `url`, or to the server of the environment.

        Raises:
            ConfigurationError: neither is given.
        """
        chosen = url or self.server
        if not chosen:
            raise ConfigurationError(f"which coordinator? Pass --server or set {PREFIX}SERVER")
        url = chosen.rstrip("/")
        return Connection(url=url, ca_file=self.ca_file, allow_http=self.allow_http, patience_seconds=patience_seconds)


def load(environment: Mapping[str, str] | None = None) -> ClientSettings:
    """Settings from the environment.

    Raises:
        ConfigurationError: a file that cannot be read, a key given twice, or a value that is none.
    """
    given = os.environ if environment is None else environment
    values = {
        name: given[PREFIX + name.upper()] for name in ClientSettings.model_fields if PREFIX + name.upper() in given
    }
    key_file = given.get(f"{PREFIX}OPERATOR_KEY_FILE")
    if key_file is not None:
        if "operator_key" in values:
            raise ConfigurationError(f"{PREFIX}OPERATOR_KEY and {PREFIX}OPERATOR_KEY_FILE are both set: keep one")
        values["operator_key"] = read_secret(Path(key_file))
    try:
        return ClientSettings.model_validate(values)
    except ValueError as error:
        # The other fields take any text: nothing else can be wrong.
        raise ConfigurationError(f"{PREFIX}ALLOW_HTTP is true or false") from error


def read_secret(path: Path) -> str:
    """The one line of a secret's file.

    Raises:
        ConfigurationError: it cannot be read or is empty.
    """
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the file {path} cannot be read") from error
    if not secret:
        raise ConfigurationError(f"the file {path} is empty")
    return secret
