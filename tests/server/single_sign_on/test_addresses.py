from __future__ import annotations

import pytest

from server.single_sign_on.addresses import is_loopback, is_provider_address


@pytest.mark.parametrize("address", ["https://id.example", "https://id.example:8443/a?b=c", "https://[2001:db8::1]/"])
def test_encrypted_addresses_are_accepted(address: str) -> None:
    assert is_provider_address(address, loopback=False)
    assert not is_loopback(address)


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1", "http://127.8.9.1:80/a", "http://[::1]:1/", "http://localhost"]
)
def test_this_machine_may_be_plain_where_that_is_said(address: str) -> None:
    assert is_loopback(address)
    assert is_provider_address(address, loopback=True)
    assert not is_provider_address(address, loopback=False)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "id.example",
        "//id.example",
        "https:///a",
        "https://id.example/a b",
        "https://id.example/\n",
        "https://id.example/#a",
        "https://u@id.example",
        "https://id.example:x/",
        "https://id.example:70000/",
        "https://id.example\\.evil.example/",
        "https://[::1/",
        "http://id.example",
        "http://127.0.0.1.example",
        "http://10.0.0.1",
        "ftp://127.0.0.1",
        "javascript://127.0.0.1/",
        "https://" + "a" * 3000,
    ],
)
def test_other_addresses_are_refused(address: str) -> None:
    assert not is_provider_address(address, loopback=True)
