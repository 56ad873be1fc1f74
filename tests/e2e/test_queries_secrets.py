"""What the coordinator keeps of a query: no exact count, on its disk or in its log; and studies that train, too."""

from __future__ import annotations

import contextlib
import logging
import math
import struct
from collections.abc import Iterator
from pathlib import Path

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp

from accounting.budget.budget import replay
from accounting.plan.queries import QueryCost
from client_sdk.data import Table
from client_sdk.protocol.randomness.source import Purpose, SecureRandomness
from client_sdk.protocol.statistics.kinds import QUESTION
from client_sdk.study.answers import noise_share
from server.db.ledger_store import entries
from server.db.rows import find_study
from server.db.tables import Base
from tests.factories.asking import answered, document, drive, enrolled, operator
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import settings, statistics_settings
from tests.factories.studies import FakeClock

pytestmark = pytest.mark.timeout(300)
# Primes that stand nowhere else, and whose sums do not either.
PLANTED = (31_337, 27_644, 20_983, 15_013, 11_743)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def here(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Live]:
    home = tmp_path / "home"
    with live(home, time_of_day=clock, database_url=database_url, long_poll_seconds=0.2) as coordinator:
        yield coordinator


def planted(place: int) -> Table:
    patients = [f"p{i}" for i in range(PLANTED[place])]
    return Table.of({"age": np.full(len(patients), 40.0), "patient": patients}, patient_column="patient")


def forms(count: int, steps: int) -> list[bytes]:
    """A count, and the count in grid steps, as anything would write it down."""
    found = [str(count).encode(), str(count * steps).encode()]
    for number in (count, count * steps):
        found += [struct.pack("<q", number), struct.pack(">q", number), struct.pack("<d", float(number))]
        # A base64 text of eight octets hides them only where they are not aligned; the octets themselves are searched.
        found.append(struct.pack(">d", float(number)))
    return found


@pytest.mark.parametrize("masked", [True, False])
def test_no_exact_count_is_on_the_coordinators_disk_or_in_its_log(
    here: Live, tmp_path: Path, caplog: pytest.LogCaptureFixture, masked: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    sites = enrolled(here, tmp_path, statistics_settings(masked=masked, max_queries=1, epsilon=15.0), data=planted)
    for site in sites:
        site.start()
    spacing = QUESTION.validate_python({"kind": "count", "noise_multiplier": 2.0}).grid().spacing
    sums = {*PLANTED, sum(PLANTED)} | {sum(PLANTED) - one for one in PLANTED}
    secrets = {form for count in sums for form in forms(count, round(1 / spacing))}
    looked = 0

    def never_there() -> None:
        nonlocal looked
        for path, written in kept(here):
            looked += 1
            assert not [form for form in secrets if form in written], path

    with operator(here) as lead:
        number = lead.ask_query("registry", document(kind="count", noise_multiplier=2.0)).number

        def done() -> bool:
            # At every step of the round, not only when its files are gone.
            never_there()
            return lead.query("registry", number).state == "answered"

        drive(here, done, sites=sites)
        found = lead.query("registry", number)
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)
    never_there()
    assert looked > 20
    # A coordinator that kept the sum, in any of the forms, would be seen.
    for form in forms(sum(PLANTED), round(1 / spacing)):
        (here.home / "planted").write_bytes(b"between" + form + b"others")
        with pytest.raises(AssertionError, match="planted"):
            never_there()
    (here.home / "planted").unlink()
    assert found.answered is not None
    # The hospitals run in this process; what they log is theirs.
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("client_sdk")]
    assert not [form for form in secrets for line in ours if form in line.encode()]
    estimate = found.answered.published.answer.tables[0].rows[0][0]
    assert estimate != sum(PLANTED)
    assert abs(float(estimate or 0) - sum(PLANTED)) < 8 * found.answered.published.noise.present


def kept(here: Live) -> Iterator[tuple[str, bytes]]:
    """Every file of the coordinator, and every row of its database as text."""
    for path in here.home.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            # Gone in between, or a folder.
            if path.is_file():
                yield str(path), path.read_bytes()
    for table in Base.metadata.sorted_tables:
        rows = here.coordinator.database.read("look", lambda tx, t=table: tx.session.execute(t.select()).all())
        yield table.name, repr(rows).encode()
        # Octets as they lie there.
        yield table.name, b"".join(value for row in rows for value in row if isinstance(value, bytes))


def test_honest_shares_add_up_to_the_noise_that_is_charged() -> None:
    """Five hospitals, of whom three are surely honest: their noise has at least s², and all together 5/3 of it.

    Of 20,000 sums the standard error of a variance is 1 %; five of them are a false alarm below 1e-6.
    """
    question = QUESTION.validate_python({"kind": "count", "noise_multiplier": 6.0})
    grid, coins = question.grid(), SecureRandomness()
    shares = [
        noise_share(grid, 3, 20_000, coins.of(Purpose.QUERY, party=f"h{i}", round=1)).astype(float) for i in range(5)
    ]
    honest, everybody = sum(shares[:3]), sum(shares)
    assert isinstance(honest, np.ndarray)
    assert isinstance(everybody, np.ndarray)
    assert honest.var() == pytest.approx(grid.std**2, rel=0.05)
    assert everybody.var() == pytest.approx(grid.std**2 * 5 / 3, rel=0.05)
    assert honest.std() * grid.spacing == pytest.approx(6.0, rel=0.03)


def test_rounds_and_questions_in_turn_are_one_budget(here: Live, tmp_path: Path) -> None:
    """A study that trains and is asked: three rounds and three queries; ε from the ledger's events by dp-accounting."""
    chosen = settings(
        masked=True,
        max_steps=3,
        schedule={"round_deadline_seconds": 60.0},
        statistics={"max_queries": 3, "max_cells": 100},
    )
    sites = enrolled(here, tmp_path, chosen)
    asked = [
        document(kind="count", noise_multiplier=4.0),
        document(kind="table", noise_multiplier=5.0, variables=[{"column": "age", "edges": [30.0, 60.0]}]),
        document(kind="count", noise_multiplier=9.0, where=[{"column": "age", "low": 50.0}]),
    ]
    for site in sites:
        site.start()
    for one in asked:
        assert answered(here, sites, one).state == "answered"
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)
    found = here.coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, "registry").id, 0, 10_000))
    budget = replay(found)
    assert (budget.charged_rounds, budget.charged_queries) == (3, 3)
    other = rdp.RdpAccountant([chosen.privacy.classical_order + 1], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    for entry in found:
        if entry.kind == "asked":
            cost = QueryCost.from_dict(entry.body["cost"])
            other.compose(dp_accounting.GaussianDpEvent(cost.noise_std / cost.sensitivity))
        elif entry.kind == "reserved":
            step = dp_accounting.GaussianDpEvent(chosen.privacy.noise_multiplier)
            other.compose(dp_accounting.PoissonSampledDpEvent(chosen.privacy.sampling_rate, step))
    with operator(here) as lead:
        stated = next(one for one in lead.budget("registry").limits if one.definition == "classical")
    # The limit is ε = 50: what the sampler's cut tails may add at such an ε is taken off δ.
    assert stated.spent == pytest.approx(other.get_epsilon(1e-5), rel=1e-6)
    assert math.isfinite(stated.spent or math.inf)
