"""An answer that takes long keeps the lease: another worker would begin it again, and so on for ever."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from server.services.rounds.answer import _meanwhile  # pyright: ignore[reportPrivateUsage]


def test_the_lease_is_renewed_while_an_answer_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.services.rounds.answer._RENEW_SECONDS", 0.001)
    renewed = threading.Event()

    def work() -> Any:
        # It ends only after a renewal.
        return "the answer" if renewed.wait(60) else "never renewed"

    assert _meanwhile(work, renewed.set) == "the answer"


def test_what_goes_wrong_in_it_is_raised() -> None:
    def work() -> Any:
        raise ValueError("no sound sum")

    with pytest.raises(ValueError, match="no sound sum"):
        _meanwhile(work, lambda: None)
