"""Flower's accountant over a ledger: it reserves before a round, settles after, and goes on in the next run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import dp_accounting
import pytest

from client_sdk.errors import ConfigurationError, LedgerDamaged, OwnBudgetExceeded
from wardround.flower.accountant import LedgerAccountant

DELTA = 1e-5


@dataclass
class Event:
    noise_multiplier: float = 8.0
    sample_size: int = 4
    population_size: int = 4


def accountant(folder: Path, **more: object) -> LedgerAccountant:
    settings = {"epsilon": 2.0, "delta": DELTA, "population": 4, **more}
    return LedgerAccountant(folder / "runs.db", **settings)  # type: ignore[arg-type]


def kinds(account: LedgerAccountant) -> list[str]:
    return [entry.kind for entry in account.ledger.entries()]


def test_a_round_is_charged_before_its_messages_leave_and_settled_after(tmp_path: Path) -> None:
    account = accountant(tmp_path)
    assert account.get_epsilon(DELTA) == 0
    assert not account.would_exceed(Event())
    reserved = account.get_epsilon(DELTA)
    assert reserved == pytest.approx(dp_accounting.get_epsilon_gaussian(8.0, DELTA), abs=1e-9)
    account.compose(Event())
    assert account.get_epsilon(DELTA) == reserved
    assert kinds(account) == ["opened", "reserved", "settled"]
    spent = account.get_privacy_spent()
    assert (spent.epsilon, spent.delta, spent.num_releases) == (reserved, DELTA, 1)


def test_a_second_run_goes_on_to_the_digit(tmp_path: Path) -> None:
    first = accountant(tmp_path)
    for _ in range(3):
        assert not first.would_exceed(Event())
        first.compose(Event())
    # A round whose updates never came: the strategy asks again without a compose.
    assert not first.would_exceed(Event())
    second = accountant(tmp_path)
    assert second.get_epsilon(DELTA) == first.get_epsilon(DELTA)
    assert second.num_releases == 4
    assert not second.would_exceed(Event())
    second.compose(Event())
    assert second.get_epsilon(DELTA) == pytest.approx(
        dp_accounting.get_epsilon_gaussian(8 / math.sqrt(5), DELTA), abs=1e-9
    )


def test_the_round_that_would_overspend_is_refused_without_a_charge(tmp_path: Path) -> None:
    account, rounds = accountant(tmp_path), 0
    while not account.would_exceed(Event()):
        account.compose(Event())
        rounds += 1
    assert dp_accounting.get_epsilon_gaussian(8 / math.sqrt(rounds), DELTA) <= 2.0
    assert dp_accounting.get_epsilon_gaussian(8 / math.sqrt(rounds + 1), DELTA) > 2.0
    assert account.num_releases == rounds
    with pytest.raises(OwnBudgetExceeded):
        account.compose(Event())
    assert account.num_releases == rounds


def test_a_question_with_a_limit_of_its_own_charges_nothing(tmp_path: Path) -> None:
    account = accountant(tmp_path)
    one = dp_accounting.get_epsilon_gaussian(8.0, DELTA)
    assert account.would_exceed(Event(), max_epsilon=one * 0.99)
    assert not account.would_exceed(Event(), max_epsilon=one * 1.01)
    assert account.num_releases == 0


def test_a_release_that_was_not_asked_for_is_charged_when_it_is_composed(tmp_path: Path) -> None:
    account = accountant(tmp_path)
    assert not account.would_exceed(Event())
    account.compose(Event(noise_multiplier=16.0), count=2)
    # Both stay: the first may have been sent.
    squares = 1 / 64 + 2 / 256
    expected = dp_accounting.get_epsilon_gaussian(1 / math.sqrt(squares), DELTA)
    assert account.get_epsilon(DELTA) == pytest.approx(expected, abs=1e-9)


def test_poisson_sampling_is_credited_in_a_ledger_for_it(tmp_path: Path) -> None:
    account = accountant(tmp_path, population=100, sampling="poisson")
    account.compose(Event(noise_multiplier=3.0, sample_size=2, population_size=100), count=10)
    order = 2 * math.log(1 / DELTA) / 2.0
    peer = dp_accounting.rdp.RdpAccountant(orders=[order + 1])
    peer.compose(dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(3.0)), 10)
    assert account.get_epsilon(DELTA) == pytest.approx(peer.get_epsilon(DELTA), rel=1e-6)
    assert account.get_privacy_spent().optimal_order == order + 1


def test_draws_without_replacement_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="without replacement"):
        accountant(tmp_path, sampling="without-replacement")


def test_an_event_of_another_population_is_refused(tmp_path: Path) -> None:
    account = accountant(tmp_path)
    with pytest.raises(ConfigurationError, match="of 5 clients, and not of 4"):
        account.would_exceed(Event(population_size=5))


def test_a_state_is_found_again_in_the_ledger_that_goes_on_from_it(tmp_path: Path) -> None:
    first = accountant(tmp_path)
    first.compose(Event())
    state = first.state_dict()
    first.compose(Event())
    second = accountant(tmp_path)
    second.load_state_dict(state)
    # What was spent since stays spent.
    assert second.num_releases == 2
    second.load_state_dict(second.state_dict())


def test_a_state_of_another_ledger_is_found(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first, other = accountant(tmp_path), accountant(tmp_path / "other")
    first.compose(Event())
    with pytest.raises(LedgerDamaged, match="restore the ledger"):
        other.load_state_dict(first.state_dict())
    with pytest.raises(ConfigurationError, match="no state"):
        other.load_state_dict({"schema_version": 1, "backend": "rdp"})


def test_delta_at_an_epsilon_is_the_other_reading(tmp_path: Path) -> None:
    account = accountant(tmp_path)
    assert account.get_delta(1.0) == 0
    account.compose(Event())
    assert account.get_delta(account.get_epsilon(DELTA)) == pytest.approx(DELTA, rel=1e-5)


def test_without_flower_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "flwr", None)
    with pytest.raises(ConfigurationError, match=r"wardround\[flower\]"):
        _ = accountant(tmp_path).config
