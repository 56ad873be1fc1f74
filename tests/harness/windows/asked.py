"""Import this before packages of the hospital: it plays Windows here, and in every process that is started from here,
if WARDROUND_TEST_WINDOWS is set."""

from __future__ import annotations

import os

# Taken away, since the program refuses names that it does not know.
if os.environ.pop("WARDROUND_TEST_WINDOWS", ""):
    # Only here, because Windows itself lacks what the stand-in is made of.
    from tests.harness.windows import stand_in

    os.environ.update(stand_in.environment())
    stand_in.install()
