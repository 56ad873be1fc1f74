"""Who takes part: an independent coin per client."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def sample(clients: Iterable[str], rate: float, heads: Callable[[float], bool]) -> list[str]:
    """Poisson sample of the clients, in order of their names; rate 1 takes them all."""
    return [client for client in sorted(clients) if rate == 1.0 or heads(rate)]
