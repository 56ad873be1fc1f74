"""The hospital's own ledger: durable, chained, one process, its own limits."""

import math
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant

from client_sdk.errors import ConfigurationError, LedgerDamaged, LedgerNotWritten, OwnBudgetExceeded
from client_sdk.guard.charges import Charge, OwnLimit, epsilon_spent, require_affordable
from client_sdk.guard.ledger import ChargedRound, HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy_limits import LimitSection
from private_learning.records import TableFormat
from tests.factories.settings import settings

CHARGE = Charge("instance", 1.0, 0.5, 2)
MODEL = "a" * 64


def opened(tmp_path: Path) -> HospitalLedger:
    ledger = HospitalLedger.open(ledger_path(tmp_path, "icu"))
    ledger.open_study("sepsis", {"settings_sha256": "s"})
    return ledger


def test_a_round_is_charged_finished_and_found_again_after_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        assert ledger.charged_round("sepsis", 1) is None
        ledger.charge("sepsis", 1, CHARGE, (), MODEL)
        assert ledger.charged_round("sepsis", 1) == ChargedRound(2, MODEL, None)
        ledger.finish_update("sepsis", 1, sha256="d" * 64, size=10, sums=b"sums")
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as again:
        assert again.charged_round("sepsis", 1) == ChargedRound(2, MODEL, "d" * 64)
        assert again.sums("sepsis") == b"sums"
        assert again.charges() == [CHARGE]
        assert again.rounds_known("sepsis") == {1}
        assert again.opened("stroke") is None
        assert [entry.kind for entry in again.entries] == ["opened", "reserved", "settled"]
        assert [(d.what, d.charge, d.sent_at) for d in again.departures("sepsis")] == [("update", 2, None)]
        again.mark_answered("sepsis", 1, "d" * 64, "accepted")
        again.mark_answered("sepsis", 1, "d" * 64, "repeated")
        assert again.departures()[0].answer == "accepted"


def test_one_round_is_charged_and_finished_once(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.charge("sepsis", 1, CHARGE, (), MODEL)
        with pytest.raises(LedgerNotWritten):
            ledger.charge("sepsis", 1, CHARGE, (), MODEL)
        with pytest.raises(LedgerDamaged, match="without a charge"):
            ledger.finish_update("sepsis", 2, sha256="d" * 64, size=1, sums=None)
        assert len(ledger.entries) == 2


def test_own_epsilon_is_the_renyi_filter_of_an_independent_library() -> None:
    charges = [CHARGE, Charge("instance", 2.0, 0.1, 30), Charge("client", 0.1, 1.0, 99)]
    limit = OwnLimit("instance", 8.0, 1e-5, order=7.0)
    peer = RdpAccountant(orders=[8.0])
    peer.compose(PoissonSampledDpEvent(0.5, GaussianDpEvent(1.0)), 2)
    peer.compose(PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0)), 30)
    assert epsilon_spent(charges, limit) == pytest.approx(peer.get_epsilon(1e-5), rel=1e-6)
    assert epsilon_spent(charges, limit) >= peer.get_epsilon(1e-5) * (1 - 1e-12)
    assert epsilon_spent([], limit) == 0.0


def test_the_usual_order_is_where_gaussian_noise_reaches_the_limit() -> None:
    # Without sampling, ε(λ) = ρ(λ+1) + ln(1/δ)/λ is least at λ = √(ln(1/δ)/ρ); ρ is what makes that least value ε.
    epsilon, delta = 3.0, 1e-6
    order = LimitSection(epsilon=epsilon, delta=delta).fixed_order()
    rho = math.log(1 / delta) / order**2
    assert 2 * math.sqrt(rho * math.log(1 / delta)) == pytest.approx(epsilon)


def test_the_charge_that_would_pass_a_limit_is_not_written(tmp_path: Path) -> None:
    one_round = epsilon_spent([CHARGE], OwnLimit("instance", 1.0, 1e-5, 4.0))
    two_rounds = epsilon_spent([CHARGE, CHARGE], OwnLimit("instance", 1.0, 1e-5, 4.0))
    limit = OwnLimit("instance", (one_round + two_rounds) / 2, 1e-5, 4.0)
    with opened(tmp_path) as ledger:
        ledger.open_study("stroke", {})
        ledger.charge("sepsis", 1, CHARGE, (limit,), MODEL)
        # The records are the same, so the other study finds the budget spent.
        with pytest.raises(OwnBudgetExceeded, match="own limit at level instance"):
            ledger.charge("stroke", 1, CHARGE, (limit,), MODEL)
        ledger.charge("stroke", 1, Charge("client", 1.0, 1.0, 1), (limit,), MODEL)
        assert len(ledger.charges()) == 2


def test_a_limit_that_is_exactly_reached_is_kept() -> None:
    exact = epsilon_spent([CHARGE], OwnLimit("instance", 1.0, 1e-5, 4.0))
    require_affordable([], CHARGE, [OwnLimit("instance", exact, 1e-5, 4.0)])
    with pytest.raises(OwnBudgetExceeded):
        require_affordable([], CHARGE, [OwnLimit("instance", math.nextafter(exact, 0.0), 1e-5, 4.0)])


def test_an_infinite_epsilon_counts_as_overspent() -> None:
    hopeless = Charge("instance", 1e-200, 1.0, 1)
    with pytest.raises(OwnBudgetExceeded):
        require_affordable([], hopeless, [OwnLimit("instance", 1e300, 1e-5, 4.0)])


def test_a_round_costs_what_the_public_settings_say() -> None:
    parallel = settings(training={"algorithm": "fedavg", "local_steps": 3})
    assert Charge.of(parallel) == Charge("instance", 1.0, 0.5, 3)
    limit = {"level": "client", "definition": "classical", "epsilon": 50.0, "delta": 1e-5}
    central = settings(scheme="client", limits=[limit], client_sampling_rate=0.25)
    # min_clients is 1: an abandoned round tells who was sampled, so sampling earns nothing.
    assert Charge.of(central) == Charge("client", 1.0, 1.0, 1)


def test_lost_rounds_are_charged_in_full_and_their_sums_forgotten(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.charge("sepsis", 1, CHARGE, (), MODEL)
        ledger.finish_update("sepsis", 1, sha256="d" * 64, size=1, sums=b"too small")
        ledger.accept_loss("sepsis", 5, [replace(CHARGE, steps=5 * CHARGE.steps)])
        assert ledger.rounds_known("sepsis") == {1, 2, 3, 4, 5}
        assert ledger.rounds_lost("sepsis") == 5
        assert sum(charge.steps for charge in ledger.charges()) == 2 + 5 * 2
        assert ledger.sums("sepsis") is None


def test_what_left_is_counted_once_after_a_loss_and_no_known_question_is_taken_away(tmp_path: Path) -> None:
    """A ledger that was restored from an old copy knows rounds 1 and 2. The coordinator says which questions were
    lost.
    """
    question, other = Charge("instance", 20.0, 1.0, 1, asks=True), Charge("instance", 30.0, 1.0, 1, asks=True)
    lost = [replace(CHARGE, steps=5 * CHARGE.steps)]
    for number, (listed, expected) in enumerate(
        (((), [*lost, question]), ((question,), [*lost, question]), ((question, other), [*lost, question, other]))
    ):
        with opened(tmp_path / str(number)) as ledger:
            for round_number, charge in ((1, CHARGE), (2, question)):
                ledger.charge("sepsis", round_number, charge, (), MODEL)
                ledger.finish_update("sepsis", round_number, sha256="d" * 64, size=1, sums=None)
            assert ledger.sent("sepsis") == [CHARGE, question]
            ledger.accept_loss("sepsis", 5, [*lost, *listed])
            assert ledger.sent("sepsis") == expected
            ledger.charge("sepsis", 6, CHARGE, (), MODEL)
            assert ledger.sent("sepsis") == expected
            ledger.finish_update("sepsis", 6, sha256="d" * 64, size=1, sums=None)
            assert ledger.sent("sepsis") == [*expected, CHARGE]


def test_times_are_utc(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.ready_refusal("sepsis", 1, sha256="e" * 64, size=3)
        assert ledger.departures()[0].ready_at.endswith("+00:00")


SEMICOLONS = TableFormat("semicolon", "cp1252", decimal="comma", dates="dmy")


def test_the_format_of_tables_is_kept_through_a_restart_and_its_change_is_recorded(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        assert ledger.table_format is None
        ledger.declare_format(SEMICOLONS)
        ledger.declare_format(SEMICOLONS)
        ledger.declare_format(TableFormat("tab"))
    with HospitalLedger.open(ledger_path(tmp_path, "icu")) as again:
        assert again.table_format == TableFormat("tab")
        kept = [entry.body for entry in again.entries if entry.kind not in ("opened",)]
        assert [(body["format"]["separator"], (body["replaced"] or {}).get("separator")) for body in kept] == [
            ("semicolon", None),
            ("tab", "semicolon"),
        ]
        assert again.charges() == []
        assert again.rounds_known("sepsis") == set()


def test_the_format_stays_while_a_study_has_charged_for_reading_by_it(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.declare_format(SEMICOLONS)
        ledger.charge("sepsis", 1, CHARGE, (), MODEL)
        ledger.declare_format(SEMICOLONS)
        with pytest.raises(ConfigurationError, match="study sepsis has been charged"):
            ledger.declare_format(TableFormat("tab"))
        assert ledger.table_format == SEMICOLONS
        ledger.finish_study("sepsis", "stopped")
        ledger.declare_format(TableFormat("tab"))
        assert ledger.table_format == TableFormat("tab")


def test_a_format_that_was_changed_in_the_file_breaks_the_chain(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.declare_format(SEMICOLONS)
    with sqlite3.connect(ledger_path(tmp_path, "icu")) as connection:
        connection.execute("UPDATE entries SET body = replace(body, 'comma', 'point') WHERE kind = 'declared'")
    with pytest.raises(LedgerDamaged):
        HospitalLedger.open(ledger_path(tmp_path, "icu"))
