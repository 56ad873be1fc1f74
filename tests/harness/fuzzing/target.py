"""A parser with the errors that it may raise and with inputs to begin from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One parser under test.

    Attributes:
        parse: Reads the bytes. Any exception beside `errors` is a fault, and so is a failed assertion in it.
        errors: What the parser's documentation says that it raises.
        seeds: Valid inputs, from which mutation begins.
        seconds: Longest time that one input may take.
        mebibytes: Most memory that the process may take.
    """

    parse: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: Callable[[], Iterable[bytes]]
    seconds: int = 10
    mebibytes: int = 2048

    def try_input(self, data: bytes) -> bool:
        """Parse one input. Return whether the parser took it; a documented error is no fault."""
        try:
            self.parse(data)
        except self.errors:
            return False
        return True


def choose(data: bytes, count: int) -> tuple[int, bytes]:
    """Split an input into the number of a variant, from its first byte, and the rest."""
    return (data[0] if data else 0) % count, data[1:]


def chosen_seeds(bodies: Iterable[bytes]) -> list[bytes]:
    """Inputs that `choose` splits again, one for each variant in order."""
    return [bytes([number]) + body for number, body in enumerate(bodies)]
