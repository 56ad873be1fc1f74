"""Settings from the environment: read strictly, secrets from files, and never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from client_sdk.api.config import ClientSettings, Connection, load, read_secret
from client_sdk.errors import ConfigurationError
from server.config import Settings
from server.config import load as load_coordinators
from study_protocol.wire.variables import CLIENT_NAMES, COORDINATOR_NAMES, KNOWN_NAMES, PREFIX


def test_an_empty_environment_gives_the_defaults() -> None:
    given = load({})
    assert (given.server, given.api_key, given.allow_http) == (None, None, False)
    with pytest.raises(ConfigurationError, match="WARDROUND_SERVER"):
        given.connection()


def test_every_variable_reaches_the_connection(tmp_path: Path) -> None:
    given = load(
        {
            "WARDROUND_SERVER": "https://study.example.org/",
            "WARDROUND_CA_FILE": str(tmp_path / "ca.pem"),
            "WARDROUND_ALLOW_HTTP": "true",
            "WARDROUND_CLIENT_HOME": str(tmp_path),
            "PATH": "not ours",
        }
    )
    connection = given.connection(patience_seconds=7.0)
    assert connection == Connection(
        url="https://study.example.org",
        ca_file=tmp_path / "ca.pem",
        allow_http=True,
        connect_seconds=2.0,
        patience_seconds=7.0,
    )
    assert given.client_home == tmp_path
    assert given.connection("https://other.example").url == "https://other.example"


@pytest.mark.parametrize(
    ("mistyped", "meant"),
    [
        ("WARDROUND_CAFILE", "WARDROUND_CA_FILE"),
        ("WARDROUND_SEVRER", "WARDROUND_SERVER"),
        ("WARDROUND_API_KEYFILE", "WARDROUND_API_KEY_FILE"),
        ("WARDROUND_SERVER_FILE", "WARDROUND_SERVER"),
    ],
)
def test_a_mistyped_name_is_told_with_the_one_that_was_meant(mistyped: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{mistyped} is unknown: did you mean {meant}"):
        load({mistyped: "secret", "OTHER": "x"})


def test_each_side_accepts_the_names_of_the_other() -> None:
    assert set(COORDINATOR_NAMES) == {name.upper() for name in Settings.model_fields}
    assert set(CLIENT_NAMES) == {name.upper() for name in ClientSettings.model_fields}
    coordinators = {
        name for name in KNOWN_NAMES if name.removeprefix(PREFIX).removesuffix("_FILE") in COORDINATOR_NAMES
    }
    assert load(dict.fromkeys(coordinators, "anything")) == load({})
    assert load_coordinators(dict.fromkeys(KNOWN_NAMES - coordinators, "anything")) == Settings()


def test_a_key_comes_from_one_place_and_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("wrk_1_hunter2\n")
    given = load({"WARDROUND_API_KEY_FILE": str(path)})
    assert given.api_key is not None
    assert given.api_key.get_secret_value() == "wrk_1_hunter2"
    assert "hunter2" not in repr(given)
    with pytest.raises(ConfigurationError, match="both set"):
        load({"WARDROUND_API_KEY_FILE": str(path), "WARDROUND_API_KEY": "wrk_1_other"})


def test_an_empty_value_is_as_good_as_none() -> None:
    names = ["WARDROUND_API_KEY_FILE", "WARDROUND_CLIENT_HOME", "WARDROUND_SERVER", "WARDROUND_CA_FILE"]
    assert load(dict.fromkeys(names, "")) == load({})
    key = {"WARDROUND_API_KEY": "wrk_1_hunter2"}
    assert load(key | {"WARDROUND_API_KEY_FILE": ""}) == load(key)


def test_a_value_that_is_none_says_what_is_expected() -> None:
    with pytest.raises(ConfigurationError, match="true or false"):
        load({"WARDROUND_ALLOW_HTTP": "perhaps"})


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"], ids=["missing", "empty", "blank", "not text"])
def test_a_secret_that_is_not_in_its_file_is_named_by_its_path(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=str(path)):
        read_secret(path)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["connect_seconds", "read_seconds"])
def test_a_wait_is_a_positive_number_of_seconds(name: str, seconds: float) -> None:
    with pytest.raises(ValidationError, match=name):
        Connection.model_validate({"url": "https://x", name: seconds})
