"""With a real Flower, of the environment `.flower-venv` or of the interpreter that FLOWER_PYTHON names."""

from __future__ import annotations

import json
import math
from pathlib import Path

import dp_accounting
import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from research.benchmarks.flower_ledger import changed_lines, killed, refused
from tests.factories.flower_python import PYTHON, needs_flower, run_with_flower
from wardround.flower.framework import flower
from wardround.flower.statement import read_statement

# Flower's simulation starts Ray twice, on cores that other tests use.
patient = pytest.mark.timeout(900)
PROTOCOL = """
import sys
from pathlib import Path
from flwr.serverapp import PrivacyConfig, SamplingMethod
from wardround.flower import LedgerAccountant
account = LedgerAccountant(Path(sys.argv[1]), epsilon=2.0, delta=1e-5, population=4)
assert isinstance(account.config, PrivacyConfig)
assert account.config.sampling_method is SamplingMethod.NO_AMPLIFICATION
assert account.config.max_epsilon == 2.0
from flwr.supercore.privacy_accounting import PrivacyAccountant
missing = [name for name in vars(PrivacyAccountant) if not name.startswith("_") and not hasattr(account, name)]
print(missing)
"""


def test_a_module_that_is_missing_is_named_with_the_extra() -> None:
    with pytest.raises(ConfigurationError, match=r"flwr\.no_such_module is missing.*wardround\[flower\]"):
        flower("flwr.no_such_module")


def test_the_quickstart_has_ten_changed_lines_at_most() -> None:
    lines = changed_lines()
    assert all(count > 0 for count in lines.values())
    assert sum(lines.values()) <= 10


@pytest.mark.slow
@needs_flower
def test_the_accountant_has_all_that_flowers_protocol_names(tmp_path: Path) -> None:
    done = run_with_flower("-c", PROTOCOL, str(tmp_path / "runs.db"))
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


@pytest.mark.slow
@needs_flower
@patient
def test_after_a_kill_flower_starts_at_zero_and_the_ledger_goes_on_to_the_digit() -> None:
    read = dict(killed(str(PYTHON)))
    assert read["flower"]["next_process"] == 0
    assert read["flower"]["last_shown"] > 0
    # The third round was charged before its messages left, and the process died before it had a model of it.
    assert read["ledger"]["next_process"] == pytest.approx(
        dp_accounting.get_epsilon_gaussian(8 / math.sqrt(3), 1e-5), abs=1e-9
    )


@pytest.mark.slow
@needs_flower
@patient
def test_three_processes_of_flower_share_one_limit() -> None:
    result = refused(str(PYTHON))
    assert result["third_process"] is True
    assert result["epsilon"] <= 2.0
    assert dp_accounting.get_epsilon_gaussian(8 / math.sqrt(result["charged"] + 1), 1e-5) > 2.0


@pytest.mark.slow
@needs_flower
@patient
def test_the_quickstart_runs_twice_on_one_budget(tmp_path: Path) -> None:
    for _ in range(2):
        done = run_with_flower("-m", "research.flower_quickstart.run", "kept", str(tmp_path))
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[-1])["accuracy"] > 0
    statement = read_statement(tmp_path / "runs.db")
    first, second = statement["runs"].values()
    # The app asks for eight rounds each time, and the second run ends where the limit is.
    rounds = first["steps"] + second["steps"]
    assert first["steps"] == 8
    assert 0 < second["steps"] < 8
    assert dp_accounting.get_epsilon_gaussian(2 / math.sqrt(rounds), 1e-5) <= 8.0
    assert dp_accounting.get_epsilon_gaussian(2 / math.sqrt(rounds + 1), 1e-5) > 8.0
    for hospital in range(4):
        with HospitalLedger.open(ledger_path(tmp_path / f"hospital-{hospital}", "records"), read_only=True) as ledger:
            assert len(ledger.charges()) == len(ledger.departures()) == rounds
