"""Python imports this at its start in every process whose PYTHONPATH names this folder."""

from tests.harness.windows import stand_in

stand_in.install()
