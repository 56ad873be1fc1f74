"""The systems on which files mean the same."""

from __future__ import annotations

import os

import pytest

from tests.harness import windows
from tests.harness.windows.system import System, windows_system


@pytest.fixture(params=["posix", "windows"])
def system(request: pytest.FixtureRequest) -> System:
    if request.param == "windows":
        return windows_system()
    if os.name == "nt" or windows.is_played:
        pytest.skip("this is Windows")
    return System()
