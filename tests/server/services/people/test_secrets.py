"""Tokens of people: the public part names a row, and the secret proves who holds it."""

from __future__ import annotations

import pytest

from server.services.coordinator import Coordinator
from server.services.people.secrets import id_of, is_secret_of, new_token


def test_a_token_is_named_by_its_public_part_and_proved_by_its_secret(coordinator: Coordinator) -> None:
    first, second = new_token(coordinator, "wrk"), new_token(coordinator, "wrk")
    assert first.text != second.text
    assert id_of(first.text, "wrk") == first.id
    assert is_secret_of(first.text, first.secret_sha256)
    assert not is_secret_of(second.text, first.secret_sha256)
    assert first.text.removeprefix(f"wrk_{first.id}_") not in repr(first.secret_sha256)


@pytest.mark.parametrize(
    "token",
    ["", "wrk", "wrk_", "wrk__x", "wrs_0_x", "wrk_A_x", "wrk_\x00_x", "wrk_\ud800_x", "wrk_é_x", f"wrk_{'0' * 33}_x"],
)
def test_what_no_database_holds_is_not_asked_for(token: str) -> None:
    assert id_of(token, "wrk") is None


@pytest.mark.parametrize("stored", [None, "", 0, b"x", "\ud800", "0" * 64])
def test_a_column_of_any_value_fits_no_token(stored: object) -> None:
    for token in ("", "wrk", "wrk_0_", "wrk_0_\ud800"):
        assert not is_secret_of(token, stored)
