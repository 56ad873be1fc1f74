"""Which databases a test runs on in `make test`, where it repeats on one what it shows on the other."""

from __future__ import annotations

import pytest

# For a test with the fixture `database_url`. What differs between the two, quicker tests see.
SQLITE_FIRST = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
