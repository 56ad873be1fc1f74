"""A ledger of runs: it outlives a killed process, is shared by two, refuses what overspends, and finds damage."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant

from accounting.errors import InvalidArgument
from client_sdk.errors import ConfigurationError, LedgerDamaged, OwnBudgetExceeded
from client_sdk.guard.charges import Charge
from study_protocol.wire.failpoints import EXIT_CODE
from wardround.flower.run_ledger import RunLedger
from wardround.flower.run_limit import charge_of

DELTA = 1e-5
ROUND = charge_of("client", 8.0)
# Charges a round, says so, and waits for the test, which kills it.
DIES = """
import sys
from pathlib import Path
from wardround.flower.run_ledger import RunLedger
from wardround.flower.run_limit import charge_of
ledger = RunLedger(Path(sys.argv[1]), epsilon=2.0, delta=1e-5)
ledger.settle(ledger.reserve(charge_of("client", 8.0), "first"))
ledger.settle(ledger.reserve(charge_of("client", 8.0), "first"))
ledger.reserve(charge_of("client", 8.0), "first")
print("charged", flush=True)
sys.stdin.read()
"""
SPENDS = """
import sys
from pathlib import Path
from client_sdk.errors import OwnBudgetExceeded
from wardround.flower.run_ledger import RunLedger
from wardround.flower.run_limit import charge_of
ledger, count = RunLedger(Path(sys.argv[1]), epsilon=2.0, delta=1e-5), 0
try:
    while True:
        ledger.settle(ledger.reserve(charge_of("client", 8.0), sys.argv[2]))
        count += 1
except OwnBudgetExceeded:
    print(count)
"""


def opened(path: Path, epsilon: float = 2.0) -> RunLedger:
    return RunLedger(path, epsilon=epsilon, delta=DELTA)


def started(text: str, *words: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", text, *words]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def rounds_that_fit(epsilon: float = 2.0, noise: float = 8.0) -> int:
    """By the closed form of another library."""
    fits = (n for n in range(1, 10_000) if dp_accounting.get_epsilon_gaussian(noise / math.sqrt(n), DELTA) > epsilon)
    return next(fits) - 1


def test_a_killed_process_leaves_its_reservation_charged(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    process = started(DIES, str(path))
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "charged\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()
    with opened(path) as ledger:
        assert ledger.steps() == {ROUND: 3}
        assert ledger.epsilon() == pytest.approx(dp_accounting.get_epsilon_gaussian(8 / math.sqrt(3), DELTA), abs=1e-9)
        assert [entry.kind for entry in ledger.entries()][-2:] == ["settled", "reserved"]


@pytest.mark.parametrize(
    ("place", "charged"),
    [("run-ledger.before-reserved", 0), ("run-ledger.after-reserved", 1), ("run-ledger.after-settled", 1)],
)
def test_a_death_between_two_entries_never_counts_less(tmp_path: Path, place: str, charged: int) -> None:
    path = tmp_path / "runs.db"
    process = started(DIES, str(path), WARDROUND_FAILPOINT=place)
    process.communicate()
    assert process.returncode == EXIT_CODE
    with opened(path) as ledger:
        assert sum(ledger.steps().values()) == charged
        # And the next one goes on.
        ledger.settle(ledger.reserve(ROUND, "second"))
        assert ledger.steps() == {ROUND: charged + 1}


@pytest.mark.slow
def test_two_processes_share_one_limit_to_the_last_round(tmp_path: Path) -> None:
    path = str(tmp_path / "runs.db")
    processes = [started(SPENDS, path, name) for name in ("left", "right")]
    counts = [int(process.communicate()[0]) for process in processes]
    assert sum(counts) == rounds_that_fit()
    with opened(Path(path)) as ledger:
        assert sum(ledger.steps().values()) == sum(counts)
        numbers = [(e.body["study"], e.round) for e in ledger.entries() if e.kind == "reserved"]
    assert sorted(numbers) == [(n, i) for n, c in zip(("left", "right"), counts, strict=True) for i in range(1, c + 1)]


def test_the_round_that_would_overspend_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "runs.db") as ledger:
        ledger.charge(noise_multiplier=8.0, steps=rounds_that_fit())
        before = ledger.head()
        assert ledger.epsilon() <= 2.0
        with pytest.raises(OwnBudgetExceeded, match="ε = 2, δ = 1e-05 at level client"):
            ledger.reserve(ROUND, "last")
        assert ledger.head() == before
        # A release with more noise still fits.
        ledger.reserve(charge_of("client", 1e6), "last")


def test_a_limit_holds_for_ever(tmp_path: Path) -> None:
    opened(tmp_path / "runs.db").close()
    with pytest.raises(ConfigurationError, match=r"begun with ε = 2.*not with ε = 3"):
        opened(tmp_path / "runs.db", epsilon=3.0)
    with pytest.raises(ConfigurationError, match="begun with"):
        RunLedger(tmp_path / "runs.db", epsilon=2.0, delta=DELTA, level="instance")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET body = replace(body, '8.0', '80.0') WHERE sequence = 2",
        "DELETE FROM entries WHERE sequence = 2",
        "UPDATE entries SET kind = 'cancelled' WHERE sequence = 2",
        "UPDATE entries SET body = '{' WHERE sequence = 3",
    ],
)
def test_a_changed_ledger_is_found_when_it_is_opened(tmp_path: Path, change: str) -> None:
    path = tmp_path / "runs.db"
    with opened(path) as ledger:
        ledger.settle(ledger.reserve(ROUND, "run"))
    connection = sqlite3.connect(path)
    connection.execute(change)
    connection.commit()
    connection.close()
    with pytest.raises(LedgerDamaged):
        opened(path)


def test_a_file_that_is_no_ledger_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be read as one " * 40)
    before = path.read_bytes()
    with pytest.raises(LedgerDamaged):
        opened(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("noise", "steps"), [(2.0, 1), (5.0, 10), (20.0, 300), (100.0, 5000)])
def test_epsilon_is_the_closed_form_of_another_library(tmp_path: Path, noise: float, steps: int) -> None:
    with opened(tmp_path / "runs.db", epsilon=8.0) as ledger:
        ledger.charge(noise_multiplier=noise, steps=steps)
        peer = dp_accounting.get_epsilon_gaussian(noise / math.sqrt(steps), DELTA)
        assert ledger.epsilon() == pytest.approx(peer, abs=1e-9)
        # δ is read at that ε again, rounded up.
        assert DELTA * (1 - 1e-7) <= ledger.delta(peer) <= DELTA * (1 + 1e-6)


def test_epsilon_of_sampled_steps_is_that_of_another_library_at_the_same_order(tmp_path: Path) -> None:
    runs = [(1.1, 0.01, 1000), (2.0, 0.1, 200)]
    account = RdpAccountant(orders=[10.0])
    path = tmp_path / "runs.db"
    with RunLedger(path, epsilon=20.0, delta=DELTA, level="instance", rule="renyi", order=9.0) as ledger:
        for noise, rate, steps in runs:
            ledger.charge(noise_multiplier=noise, sampling_rate=rate, steps=steps)
            event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
            account.compose(event, steps)
        assert ledger.epsilon() == pytest.approx(account.get_epsilon(DELTA), rel=1e-9)


def test_a_sampled_step_has_no_credit_under_the_gaussian_rule(tmp_path: Path) -> None:
    with opened(tmp_path / "runs.db") as ledger:
        ledger.charge(noise_multiplier=8.0, sampling_rate=0.01, steps=4)
        assert ledger.epsilon() == pytest.approx(dp_accounting.get_epsilon_gaussian(4.0, DELTA), abs=1e-9)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"noise_multiplier": 1.0, "sampling_rate": 1.5}, "sampling_rate"),
        ({"noise_multiplier": 1.0, "steps": 0}, "steps"),
    ],
)
def test_a_charge_that_is_none_is_refused(tmp_path: Path, wrong: dict[str, float], name: str) -> None:
    with opened(tmp_path / "runs.db") as ledger:
        with pytest.raises(InvalidArgument, match=name):
            ledger.charge(**wrong)  # type: ignore[arg-type]
        assert len(ledger.entries()) == 1


@pytest.mark.parametrize("epsilon", [0.0, math.inf, 60.0])
def test_a_limit_that_cannot_be_kept_makes_no_file_useful(tmp_path: Path, epsilon: float) -> None:
    with pytest.raises(InvalidArgument, match="epsilon"):
        opened(tmp_path / "runs.db", epsilon=epsilon)
    assert not (tmp_path / "runs.db").exists()


def test_a_charge_of_another_level_or_without_a_run_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "runs.db") as ledger:
        for charge, run in ((Charge("instance", 8.0, 1.0, 1), "run"), (ROUND, ""), (ROUND, "/limit")):
            with pytest.raises(ConfigurationError, match="level client"):
                ledger.reserve(charge, run)


def test_epsilon_at_a_smaller_delta_keeps_what_discrete_noise_adds_at_that_epsilon(tmp_path: Path) -> None:
    # e^27 times the error of a release is far above 1e-12, and e^20 times it is below.
    ledger = RunLedger(tmp_path / "runs.db", epsilon=20.0, delta=1e-5)
    ledger.charge(noise_multiplier=0.3)
    assert 15 < ledger.epsilon() < 20
    for delta in (1e-5, 1e-8, 1e-11, 1e-12):
        epsilon = ledger.epsilon(delta)
        assert math.isinf(epsilon) or ledger.delta(epsilon) <= delta * (1 + 1e-6)
    assert math.isinf(ledger.epsilon(1e-12))
