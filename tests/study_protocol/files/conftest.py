"""The systems on which files mean the same."""

from __future__ import annotations

import pytest

from tests.harness.windows.system import POSIX, WINDOWS, System


@pytest.fixture(params=["posix", "windows"])
def system(request: pytest.FixtureRequest) -> System:
    return POSIX if request.param == "posix" else WINDOWS
