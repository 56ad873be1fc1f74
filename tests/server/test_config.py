"""Settings: every name is checked, secrets may come from files, nothing is guessed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.config import Settings, SettingsError, load


def test_an_empty_environment_is_a_laptop() -> None:
    settings = load({"PATH": "/bin", "HOME": "/root"})
    assert settings.database().drivername == "sqlite"
    assert settings.database().database == str(Path(".wardround") / "wardround.db")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("WARDROUND_ORIGN", "WARDROUND_ORIGIN"),
        ("WARDROUND_DATABASE_PASWORD_FILE", "WARDROUND_DATABASE_PASSWORD_FILE"),
        ("WARDROUND_DATABASEURL", "WARDROUND_DATABASE_URL"),
    ],
)
def test_a_mistyped_name_is_refused_with_the_nearest_one(wrong: str, right: str) -> None:
    with pytest.raises(SettingsError, match=f"{wrong} is unknown: did you mean {right}\\?"):
        load({wrong: "x"})


@given(st.text(st.characters(codec="ascii", categories=["Lu"]), min_size=1, max_size=20))
def test_no_unknown_name_passes(name: str) -> None:
    if name.lower() in Settings.model_fields or name in ("DATA", "FAILPOINT", "SERVER"):
        return
    with pytest.raises(SettingsError, match=f"WARDROUND_{name} is unknown"):
        load({f"WARDROUND_{name}": "1"})


def test_what_other_parts_read_passes() -> None:
    assert load({"WARDROUND_FAILPOINT": "api.before-commit", "WARDROUND_DATA": "somewhere"}) == Settings()


def test_a_secret_comes_from_a_file_and_is_never_shown(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret/with:signs\n")
    settings = load(
        {
            "WARDROUND_DATABASE_URL": "postgresql+psycopg://wardround@database/wardround",
            "WARDROUND_DATABASE_PASSWORD_FILE": str(secret),
        }
    )
    assert settings.database().password == "s3cret/with:signs"
    assert "s3cret" not in repr(settings) + str(settings.database())


def test_a_password_in_the_url_is_kept() -> None:
    url = "postgresql+psycopg://wardround:own@database/wardround"
    settings = load({"WARDROUND_DATABASE_URL": url, "WARDROUND_DATABASE_PASSWORD": "other"})
    assert settings.database().password == "own"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "postgresql://wardround@database/wardround"),
        ("DATABASE_URL", "postgresql+asyncpg://wardround@database/wardround"),
        ("DATABASE_URL", "no url"),
        ("DATABASE_URL", "sqlite://"),
        ("DATABASE_URL", "sqlite:///:memory:"),
        ("DATABASE_URL", "sqlite:///file:study?mode=memory&uri=true"),
        ("ORIGIN", "https://study.example.org/"),
        ("ORIGIN", "https://study.example.org/path"),
        ("ORIGIN", "study.example.org"),
        ("ORIGIN", "ftp://study.example.org"),
        ("BLOBS", "s3://"),
        ("BLOBS", "s3://my bucket/prefix"),
        ("BLOBS", "s3://bucket:80"),
        ("BLOBS_ENDPOINT", "http://objects.example.org"),
        ("BLOBS_ENDPOINT", "https://objects.example.org:99999"),
        ("BLOBS_ENDPOINT", "https://objects.example.org:9OOO"),
        ("BLOBS_ENDPOINT", "https://objects example.org"),
        ("PORT", "65536"),
        ("PORT", "-1"),
        ("BODY_IDLE_SECONDS", "nan"),
        ("BODY_IDLE_SECONDS", "inf"),
        ("BODY_IDLE_SECONDS", "0"),
        ("LONG_POLL_SECONDS", "56"),
        ("LOG_LEVEL", "LOUD"),
        ("WORKER", "perhaps"),
    ],
)
def test_a_bad_value_is_refused_by_name_and_not_repeated(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load({f"WARDROUND_{name}": value})
    assert f"WARDROUND_{name}:" in str(refused.value)
    assert "input_value" not in str(refused.value)
    assert "wardround@database" not in str(refused.value)
    assert "9OOO" not in str(refused.value)


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        load({"WARDROUND_A": "1", "WARDROUND_PORT": "1", "WARDROUND_PORT_FILE": "x", "WARDROUND_HOST_FILE": "/none"})
    for word in ("WARDROUND_A is unknown", "both set", "WARDROUND_HOST_FILE: the file /none"):
        assert word in str(refused.value)


def test_options_win_over_the_environment() -> None:
    assert load({"WARDROUND_PORT": "1"}, port=2, host=None).port == 2


@pytest.mark.parametrize("endpoint", ["https://objects.example.org:9000/tenant", "http://[::1]:9000", "https://s3"])
def test_an_object_store_is_named_by_bucket_and_address(endpoint: str) -> None:
    settings = load({"WARDROUND_BLOBS": "s3://My_bucket.2/a prefix", "WARDROUND_BLOBS_ENDPOINT": endpoint})
    assert (settings.blobs, settings.blobs_endpoint) == ("s3://My_bucket.2/a prefix", endpoint)


SSO = {
    "WARDROUND_ORIGIN": "https://study.example.org",
    "WARDROUND_SSO_ISSUER": "https://id.example.org/realms/wardround",
    "WARDROUND_SSO_CLIENT_ID": "wardround",
    "WARDROUND_SSO_GRANTS": "/etc/wardround/grants.toml",
}


def test_people_log_in_at_a_provider(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    settings = load(SSO | {"WARDROUND_SSO_CLIENT_SECRET_FILE": str(secret), "WARDROUND_SSO_SCOPES": "groups"})
    chosen = settings.single_sign_on()
    assert chosen is not None
    assert (chosen.client_id, chosen.scope) == ("wardround", "openid profile email groups")
    assert chosen.client_secret is not None
    assert chosen.client_secret.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(settings) + repr(chosen)
    assert load({}).single_sign_on() is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"SSO_ISSUER": ""}, ["WARDROUND_SSO_ISSUER is missing"]),
        ({"SSO_GRANTS": ""}, ["WARDROUND_SSO_GRANTS is missing"]),
        ({"SSO_CLIENT_ID": ""}, ["WARDROUND_SSO_CLIENT_ID: write the name"]),
        ({"ORIGIN": "http://study.example.org"}, ["WARDROUND_ORIGIN has to begin with https://"]),
        ({"SSO_ISSUER": "http://id.example.org"}, ["WARDROUND_SSO_ISSUER: write the provider's https address"]),
        ({"SSO_ISSUER": "https://id.example.org/?realm=x"}, ["WARDROUND_SSO_ISSUER:"]),
        ({"SSO_CLIENT_ID": "ward\nround"}, ["WARDROUND_SSO_CLIENT_ID:"]),
        ({"SSO_DEVICE_CLIENT_ID": "\u00e9"}, ["WARDROUND_SSO_DEVICE_CLIENT_ID:"]),
        ({"SSO_CLIENT_SECRET": "s3\u00e9cret"}, ["WARDROUND_SSO_CLIENT_SECRET:"]),
        ({"SSO_SCOPES": 'gro"ups'}, ["WARDROUND_SSO_SCOPES:"]),
        ({"SSO_GROUPS_CLAIM": "x" * 201}, ["WARDROUND_SSO_GROUPS_CLAIM:"]),
        ({"SSO_CLOCK_SKEW_SECONDS": "601"}, ["WARDROUND_SSO_CLOCK_SKEW_SECONDS:"]),
        ({"SSO_CLOCK_SKEW_SECONDS": "soon"}, ["WARDROUND_SSO_CLOCK_SKEW_SECONDS:"]),
        ({"SSO_SESSION_MINUTES": "4"}, ["WARDROUND_SSO_SESSION_MINUTES: must be greater than or equal to 5"]),
        ({"SSO_SESSION_MINUTES": "481"}, ["WARDROUND_SSO_SESSION_MINUTES:"]),
        (
            {"ORIGIN": "http://study.example.org", "SSO_GRANTS": "", "SSO_CLIENT_ID": "", "SSO_SCOPES": "\u00e9"},
            ["WARDROUND_ORIGIN", "WARDROUND_SSO_GRANTS", "WARDROUND_SSO_CLIENT_ID", "WARDROUND_SSO_SCOPES"],
        ),
    ],
)
def test_settings_of_logins_that_do_not_fit_are_named(changes: dict[str, str], words: list[str]) -> None:
    with pytest.raises(SettingsError) as refused:
        load(SSO | {f"WARDROUND_{name}": value for name, value in changes.items()})
    assert [word for word in words if word not in str(refused.value)] == []
    for secret in ("s3", "input_value", "realm=x"):
        assert secret not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [name for name in Settings.model_fields if name.startswith("sso_") and name != "sso_issuer"],
)
def test_no_setting_of_logins_is_ignored_without_a_provider(name: str) -> None:
    value = {"sso_session_minutes": "30", "sso_clock_skew_seconds": "5"}.get(name, "x")
    with pytest.raises(SettingsError, match="WARDROUND_SSO_ISSUER is missing"):
        load({f"WARDROUND_{name.upper()}": value})


@pytest.mark.parametrize("origin", ["http://127.0.0.1:8000", "http://localhost:8000", "http://[::1]:8000"])
def test_cookies_work_without_https_on_this_machine(origin: str) -> None:
    assert load(SSO | {"WARDROUND_ORIGIN": origin}).single_sign_on() is not None
