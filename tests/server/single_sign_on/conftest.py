from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.factories.identity_provider import IdentityProvider, identity_provider


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    """A real server on this machine."""
    with identity_provider() as running:
        yield running
