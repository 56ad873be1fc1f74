"""The settings of programs at hospitals and of people with an API key, read once from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from client_sdk.errors import ConfigurationError
from study_protocol.wire import variables
from study_protocol.wire.variables import PREFIX, SecretUnreadable

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
    """The variables that the commands read: WARDROUND_SERVER, WARDROUND_API_KEY, WARDROUND_CLIENT_HOME,
    WARDROUND_CA_FILE, WARDROUND_ALLOW_HTTP. The key may come from the file WARDROUND_API_KEY_FILE instead."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    server: str | None = None
    api_key: SecretStr | None = None
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
    values, problems = variables.read_variables(
        os.environ if environment is None else environment, ClientSettings.model_fields, ("api_key",)
    )
    if problems:
        raise ConfigurationError("; ".join(problems))
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
        return variables.read_secret(path)
    except SecretUnreadable as error:
        raise ConfigurationError(str(error)) from error
