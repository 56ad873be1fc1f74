"""Dying at a failpoint inside the test's own process: an exception that nothing catches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from study_protocol.wire import failpoints


class Killed(BaseException):
    """Stands for the end of the process: no handler of the program may swallow it."""


@dataclass
class Death:
    """`hit` says whether the failpoint was passed."""

    hit: bool = False

    def come(self, name: str) -> None:
        self.hit = True
        raise Killed(name)


@contextmanager
def dying_at(name: str, nth: int = 1) -> Iterator[Death]:
    """At the nth passage of the failpoint, once."""
    death = Death()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARDROUND_FAILPOINT", f"{name}:{nth}")
        patch.setattr(failpoints, "_die", death.come)
        # Passages of earlier tests in this process do not count.
        patch.setattr(failpoints, "_passages", {})
        yield death
