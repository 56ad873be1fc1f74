"""Who is trained on and who is evaluated: one coin a patient, for ever; an own ledger with a total for each side."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import given
from hypothesis import strategies as st

from accounting.plan.queries import QueryCost
from client_sdk.errors import ConfigurationError, LedgerDamaged, OwnBudgetExceeded
from client_sdk.guard.charges import Charge, OwnLimit, epsilon_spent, require_affordable
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.split import PatientSplit
from tests.factories.settings import settings

# Texts such as 1E5 are refused as identifiers that a spreadsheet has damaged.
IDENTIFIER = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda text: not text[:1].isdigit())
IDENTIFIERS = st.lists(IDENTIFIER, unique=True, min_size=1)
SECRETS = st.binary(min_size=32, max_size=32)
LIMIT = OwnLimit("instance", 8.0, 1e-5, 6.0)
EVALUATED = settings(
    statistics={"max_queries": 5, "max_cells": 10}, evaluation={"share": 0.2}, noise_multiplier=4.0, sampling_rate=1.0
)


def query(noise_multiplier: float, bears: str) -> Charge:
    steps = 2.0**20
    return Charge.of_query(QueryCost.from_dict(
        {"noise_std": steps, "sensitivity": steps / noise_multiplier, "cells": 4, "bears": bears}
    ))  # fmt: skip


@given(SECRETS, IDENTIFIERS, IDENTIFIER, st.floats(0.01, 0.99))
def test_one_patient_more_or_less_moves_nobody_else(
    secret: bytes, patients: list[str], other: str, share: float
) -> None:
    split = PatientSplit(secret, share)
    alone = dict(zip(patients, split.set_aside(patients), strict=True))
    together = dict(zip([other, *patients], split.set_aside([other, *patients]), strict=True))
    assert all(together[patient] == side for patient, side in alone.items())
    # Nor does the order of the rows.
    backwards = dict(zip(patients[::-1], split.set_aside(patients[::-1]), strict=True))
    assert backwards == alone


@given(SECRETS, IDENTIFIERS, st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_with_a_larger_share_whoever_was_set_aside_stays_so(
    secret: bytes, patients: list[str], one: float, two: float
) -> None:
    smaller, larger = (PatientSplit(secret, share).set_aside(patients) for share in sorted((one, two)))
    assert not (smaller & ~larger).any()


def test_the_share_is_a_fair_coin_and_sides_of_two_data_sets_are_independent() -> None:
    """20,000 coins at 0.2 stay within six standard deviations, but for one run in half a billion; so do pairs."""
    patients, share = [f"patient-{number}" for number in range(20_000)], 0.2
    one, two = PatientSplit(bytes(32), share).set_aside(patients), PatientSplit(b"\x01" * 32, share).set_aside(patients)
    for found, expected in ((one.mean(), share), (two.mean(), share), ((one & two).mean(), share**2)):
        assert abs(found - expected) < 6 * math.sqrt(expected * (1 - expected) / len(patients))
    assert PatientSplit.draw(share).secret != PatientSplit.draw(share).secret
    assert "secret" not in repr(PatientSplit.draw(share))


def test_a_data_set_keeps_its_split_over_studies_and_restarts(tmp_path: Path) -> None:
    path, patients = ledger_path(tmp_path, "icu"), [f"p{number}" for number in range(200)]
    with HospitalLedger.open(path) as ledger:
        # Not kept before a study is joined: the share may still be another one.
        assert ledger.split("sepsis", 0.3).share == 0.3
        first = ledger.split("sepsis", 0.2)
        ledger.open_study("sepsis", {}, first)
        ledger.open_study("plain", {})
    with HospitalLedger.open(path) as ledger:
        assert ledger.split("sepsis", 0.2) == ledger.split("stroke", 0.2) == first
        # Whoever lies between the two shares would be trained on here and evaluated there.
        with pytest.raises(ConfigurationError, match=r"split at 0\.2"):
            ledger.split("stroke", 0.3)
        ledger.open_study("stroke", {}, ledger.split("stroke", 0.2))
        assert np.array_equal(ledger.split("stroke", 0.2).set_aside(patients), first.set_aside(patients))
    with HospitalLedger.open(ledger_path(tmp_path, "ward")) as other:
        assert other.split("sepsis", 0.2).secret != first.secret


@pytest.mark.parametrize("change", ["DELETE FROM split", "UPDATE split SET secret = zeroblob(32)",
                                    "UPDATE split SET share = 0.5"])  # fmt: skip
def test_a_split_that_was_tampered_with_ends_the_study(tmp_path: Path, change: str) -> None:
    path = ledger_path(tmp_path, "icu")
    with HospitalLedger.open(path) as ledger:
        ledger.open_study("sepsis", {}, ledger.split("sepsis", 0.2))
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    with HospitalLedger.open(path) as ledger, pytest.raises(LedgerDamaged, match="restore"):
        ledger.split("sepsis", 0.2)


def test_the_own_ledger_keeps_a_total_for_each_side_and_dp_accounting_agrees() -> None:
    training, everybody, models = Charge.of(EVALUATED), query(5.0, "all"), query(2.5, "evaluated")
    assert training.bears == "trained"

    def expected(*events: tuple[float, int]) -> float:
        account = rdp.RdpAccountant([LIMIT.order + 1], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
        for noise, times in events:
            account.compose(dp_accounting.GaussianDpEvent(noise), times)
        return account.get_epsilon(LIMIT.delta)

    for rounds, evaluations in ((8, 1), (1, 6), (3, 3)):
        charges = [training] * rounds + [everybody] * 2 + [models] * evaluations
        trained, evaluated = expected((4.0, rounds), (5.0, 2)), expected((2.5, evaluations), (5.0, 2))
        assert epsilon_spent(charges, LIMIT) == pytest.approx(max(trained, evaluated), rel=1e-9)


def test_where_a_study_trains_on_everybody_its_rounds_are_on_both_sides() -> None:
    whole = Charge.of(settings(noise_multiplier=4.0, sampling_rate=1.0))
    assert whole.bears == "all"
    both = [whole] * 3 + [query(2.5, "evaluated")] * 3
    split = [Charge.of(EVALUATED)] * 3 + [query(2.5, "evaluated")] * 3
    assert epsilon_spent(both, LIMIT) > epsilon_spent(split, LIMIT)


def test_each_side_is_refused_for_itself() -> None:
    """Evaluations without room leave training alone, and the other way round."""
    training, models = Charge.of(EVALUATED), query(2.5, "evaluated")
    spent = list[Charge]()
    while True:
        try:
            require_affordable(spent, models, [LIMIT])
        except OwnBudgetExceeded:
            break
        spent.append(models)
    assert spent
    require_affordable(spent, training, [LIMIT])
    with pytest.raises(OwnBudgetExceeded):
        require_affordable(spent, query(2.5, "all"), [LIMIT])
