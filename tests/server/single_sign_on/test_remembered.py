from __future__ import annotations

import asyncio

import pytest

from server.single_sign_on.errors import ProviderUnavailable, SingleSignOnError, SingleSignOnMisconfigured
from server.single_sign_on.remembered import KEPT_SECONDS, RENEWAL_SECONDS, RETRY_SECONDS, RememberedDocument


class Source:
    """Counts its fetches. Its time is set by a test."""

    def __init__(self) -> None:
        self.fetches, self.now = 0, 1000.0
        self.failure: SingleSignOnError | None = None
        self.document = RememberedDocument(self.fetch, lambda: self.now)

    async def fetch(self) -> int:
        self.fetches += 1
        if self.failure is not None:
            raise self.failure
        return self.fetches

    def get(self) -> int:
        return asyncio.run(self.document.get())

    def renew(self) -> int:
        return asyncio.run(self.document.renew())


def test_a_document_is_kept_for_its_time() -> None:
    source = Source()
    assert [source.get(), source.get()] == [1, 1]
    source.now += KEPT_SECONDS
    assert source.get() == 2


def test_a_clock_that_was_set_back_makes_nothing_fresh() -> None:
    source = Source()
    source.get()
    source.now -= 10 * KEPT_SECONDS
    assert source.get() == 2


def test_renewals_are_rare() -> None:
    source = Source()
    assert [source.get(), source.renew(), source.renew(), source.get()] == [1, 2, 2, 2]
    source.now += RENEWAL_SECONDS
    assert source.renew() == 3


@pytest.mark.parametrize("kind", [ProviderUnavailable, SingleSignOnMisconfigured])
def test_a_failure_is_remembered_for_a_moment(kind: type[SingleSignOnError]) -> None:
    source = Source()
    source.failure = kind("away")
    for _ in range(3):
        with pytest.raises(kind, match="away"):
            source.get()
    assert source.fetches == 1
    source.failure = None
    source.now += RETRY_SECONDS
    assert source.get() == 2


def test_a_renewal_that_failed_keeps_the_document() -> None:
    source = Source()
    source.get()
    source.failure = ProviderUnavailable("away")
    with pytest.raises(ProviderUnavailable):
        source.renew()
    assert source.get() == 1
