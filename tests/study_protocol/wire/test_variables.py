"""Variables of the environment: values, secrets from files, and every problem at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from study_protocol.wire.variables import SecretUnreadable, read_secret, read_variables


def test_values_and_secrets_are_read_by_field(tmp_path: Path) -> None:
    (secret := tmp_path / "key").write_text("wrk_1\n")
    given = {"WARDROUND_ORIGIN": "https://x", "WARDROUND_KEY_FILE": str(secret), "WARDROUND_PORT": "", "PATH": "/bin"}
    assert read_variables(given, ("origin", "port", "key"), ("key",)) == ({"origin": "https://x", "key": "wrk_1"}, [])


def test_every_problem_is_named(tmp_path: Path) -> None:
    given = {
        "WARDROUND_ORIGN": "https://x",
        "WARDROUND_KEY": "wrk_1",
        "WARDROUND_KEY_FILE": str(tmp_path),
        "WARDROUND_PASSWORD_FILE": str(tmp_path / "none"),
    }
    values, problems = read_variables(given, ("origin", "key", "password"), ("key", "password"))
    assert values == {"key": "wrk_1"}
    assert [problem.partition(":")[0] for problem in problems] == [
        "WARDROUND_KEY_FILE and WARDROUND_KEY are both set",
        "WARDROUND_ORIGN is unknown",
        "WARDROUND_PASSWORD_FILE",
    ]
    assert "did you mean WARDROUND_ORIGIN?" in problems[1]


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe\xff"])
def test_an_empty_secret_and_bytes_are_no_secret(content: bytes, tmp_path: Path) -> None:
    (path := tmp_path / "key").write_bytes(content)
    with pytest.raises(SecretUnreadable, match="key"):
        read_secret(path)
