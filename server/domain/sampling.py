"""Who takes part: an independent coin per client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Heads(Protocol):
    def __call__(self, rate: float, *, client: str) -> bool:
        """The client's own coin: True with probability exactly `rate`."""
        ...


def sample(clients: Iterable[str], rate: float, heads: Heads) -> list[str]:
    """Poisson sample of the clients, in order of their names; rate 1 takes them all."""
    return [client for client in sorted(clients) if rate == 1.0 or heads(rate, client=client)]
