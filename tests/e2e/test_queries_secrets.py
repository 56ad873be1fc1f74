"""What the coordinator keeps of a query: no exact count, on its disk or in its log; and studies that train, too."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import logging
import math
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import dp_accounting
import httpx
import numpy as np
import pytest
from dp_accounting import rdp

from accounting.budget.budget import replay
from accounting.plan.queries import QueryCost
from client_sdk.study.answers import noise_share
from private_learning.records import Table
from server.db.ledger_store import entries
from server.db.rows import find_study
from server.db.tables import Base
from study_protocol.queries.kinds import QUESTION, Question
from study_protocol.randomness.source import Purpose, SecureRandomness
from study_protocol.study.queries import Query
from tests.factories.asking import Site, answered, answering_policy, document, drive, enrolled, operator
from tests.factories.databases import SQLITE_FIRST
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import settings, statistics_settings
from tests.factories.studies import FakeClock
from wardround.demo.processes import free_port

pytestmark = pytest.mark.timeout(300)
PATIENTS = (31_337, 27_644, 20_983, 15_013, 11_743)
AGE = {"column": "age", "low": 0.0, "high": 100.0}
ASKED = (
    document(kind="count", noise_multiplier=0.6),
    document(kind="moments", noise_multiplier=0.6, numbers=[AGE]),
    # Everybody is in one cell of each table. Seven times a count is no port, as a count is none.
    document(
        kind="marginals",
        noise_multiplier=0.6,
        variables=[{"column": "age", "edges": [-1000.0]}, {"column": "ward", "categories": ["a"]}],
        cliques=[[0], [0, 1]],
        weights=[1, 7],
    ),
)
PAGES = (
    *("/dashboard.json", "/dashboard/registry.json", "/dashboard/registry/queries.json"),
    *(f"/dashboard/registry/queries/{number + 1}.json" for number in range(len(ASKED))),
    *(f"/v1/studies/registry{what}" for what in ("", "/budget", "/ledger", "/certificate", "/queries", "/rounds")),
    *(f"/v1/studies/registry/queries/{number + 1}" for number in range(len(ASKED))),
)

OF_THE_PROCESS = re.compile(r"process_|python_|wardround_\w*bytes")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def monitoring() -> int:
    return free_port()


@pytest.fixture
def here(database_url: str, tmp_path: Path, clock: FakeClock, monitoring: int) -> Iterator[Live]:
    home = tmp_path / "home"
    options = {"database_url": database_url, "long_poll_seconds": 0.2, "metrics_port": monitoring}
    with live(home, time_of_day=clock, **options) as coordinator:
        yield coordinator


def planted(place: int) -> Table:
    ages = np.random.default_rng(place).normal(60.0, 15.0, PATIENTS[place])
    columns = {"age": ages, "ward": ["a"] * len(ages), "patient": [f"p{i}" for i in range(len(ages))]}
    return Table.of(columns, patient_column="patient")


@dataclass(frozen=True)
class Secrets:
    """Every exact sum of one hospital, of all, and of all but one, however anything would write it down.

    Words are eight octets, either way round, of the sum in grid steps (as an integer, which is the ring's word too, and
    as a float) and of the sum itself. In eight octets of ciphertext one of fewer than 1,000 words stands by chance once
    in 10^16 places, and here are 10^7: 1e-9.

    Tokens are whole decimal numbers, with no digit, letter or point beside them, so that no digits inside a hash or a
    float are taken for one. Sums in grid steps and of scaled ages have ten digits and more: fewer than 500 of them,
    and 1,000 random numbers of that length that stand alone, meet with 5e-5 at most. The counts have five and
    six digits. What stands alone in rows and pages and is as long, is settings, sizes, and moments of the test's own
    clock, the same in every run; connections' ports, from 32768 to 65535, lie between those of hospitals and those of
    several. An estimate is a whole number of patients with a probability below 2^-20: so many steps has one.
    """

    words: frozenset[bytes]
    tokens: re.Pattern[bytes]

    @classmethod
    def of(cls, steps_of: Iterable[tuple[int, float]]) -> Secrets:
        """Of (sum in grid steps, spacing)."""
        words, tokens = set[bytes](), set[str]()
        for steps, spacing in steps_of:
            value = steps * spacing
            words |= {struct.pack(order + "q", steps) for order in "<>"}
            words |= {struct.pack(order + "d", number) for order in "<>" for number in (float(steps), value)}
            tokens |= {str(steps), f"{steps:,}", repr(float(steps)), repr(value)}
            if value.is_integer():
                tokens |= {f"{value:.0f}", f"{value:,.0f}"}
        any_of = "|".join(re.escape(token) for token in sorted(tokens))
        return cls(frozenset(words), re.compile(rf"(?<![0-9A-Za-z.])(?:{any_of})(?!\.?[0-9A-Za-z])".encode()))

    def inside(self, written: bytes) -> list[bytes]:
        return [word for word in self.words if word in written] + self.tokens.findall(written)


def sums_of(question: Question) -> Iterator[tuple[int, float]]:
    """Every cell, in grid steps of the spacing."""
    spacing = question.grid().spacing
    own = [question.total(planted(place).columns, spacing) for place in range(len(PATIENTS))]
    for vector in (*own, sum(own), *(sum(own) - one for one in own)):
        assert isinstance(vector, np.ndarray)
        # An empty cell is no secret that could be told from others.
        yield from ((int(cell), spacing) for cell in vector if cell)


class Look:
    """At everything that the coordinator keeps, says, and logs."""

    def __init__(self, here: Live, monitoring: int, caplog: pytest.LogCaptureFixture) -> None:
        self._here, self._monitoring, self._caplog = here, monitoring, caplog
        self.secrets = Secrets.of(one for asked in ASKED for one in sums_of(asked.question))
        self._seen = set[bytes]()

    @property
    def looked(self) -> int:
        return len(self._seen)

    def never_there(self, *places: Iterable[tuple[str, bytes]]) -> None:
        for where, written in itertools.chain(*places):
            if (seen := hashlib.sha256(written).digest()) not in self._seen:
                found = self.secrets.inside(written)
                assert not found, (where, found)
                self._seen.add(seen)

    def everywhere(self) -> None:
        self.never_there(kept(self._here), self.pages(), self.logged())

    def pages(self) -> Iterator[tuple[str, bytes]]:
        """What the API, the dashboard and the monitoring say; a page that is not there yet says so."""
        for page in PAGES:
            yield page, self._here.operator("GET", page).content
        metrics = httpx.get(f"http://127.0.0.1:{self._monitoring}/metrics", trust_env=False).text.splitlines()
        # Octets of requests, files and memory are random whole numbers of any size.
        yield "/metrics", "\n".join(line for line in metrics if not OF_THE_PROCESS.match(line)).encode()

    def logged(self) -> Iterator[tuple[str, bytes]]:
        # The hospitals run in this process; what they and their clients log is theirs.
        for record in self._caplog.records:
            if not record.name.startswith(
                ("client_sdk", "private_learning", "study_protocol", "wardround", "httpx", "httpcore")
            ):
                yield record.name, record.getMessage().encode()


def ask_everything(here: Live, look: Look, sites: list[Site]) -> list[Query]:
    """Looked at in every step of every round, not only when its files are gone."""
    found = list[Query]()
    with operator(here) as lead:
        for one in ASKED:
            number = lead.ask_query("registry", one).number

            def done(number: int = number) -> bool:
                look.never_there(kept(here))
                return lead.query("registry", number).state == "answered"

            drive(here, done, sites=sites)
            look.everywhere()
            found.append(lead.query("registry", number))
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)
    look.everywhere()
    return found


def started(here: Live, home: Path, masked: bool) -> list[Site]:
    chosen = statistics_settings(masked=masked, max_queries=len(ASKED), epsilon=20.0)
    policy = answering_policy(statistics={"queries": "allow", "least_noise_multiplier": 0.5})
    sites = enrolled(here, home, chosen, data=planted, policy=policy)
    for site in sites:
        site.start()
    return sites


@pytest.mark.slow
@SQLITE_FIRST
@pytest.mark.parametrize("masked", [True, False])
def test_no_exact_sum_is_on_the_coordinators_disk_in_its_log_or_on_its_pages(
    here: Live, tmp_path: Path, monitoring: int, caplog: pytest.LogCaptureFixture, masked: bool
) -> None:
    caplog.set_level(logging.DEBUG)
    look = Look(here, monitoring, caplog)
    counted, described, crossed = ask_everything(here, look, started(here, tmp_path, masked))
    assert look.looked > 50
    # The pages were there, and say the noised numbers.
    estimate = estimate_of(counted)
    assert all(repr(estimate).encode() in dict(look.pages())[page] for page in (PAGES[3], PAGES[-2]))
    assert estimate_of(described) == pytest.approx(60.0, abs=1.0)
    assert counted.answered is not None
    assert crossed.answered is not None
    for array in crossed.answered.published.answer.arrays:
        # Far more than one patient counts for is noise.
        assert abs(max(value or 0 for value in array.values) - sum(PATIENTS) * array.steps) > 0
    assert 0 < abs(estimate - sum(PATIENTS)) < 8 * counted.answered.published.noise.present
    # A coordinator that kept a sum, in any of the forms, would be seen.
    for form in forms_of(sum(PATIENTS), ASKED[0].question.grid().spacing):
        (here.home / "planted").write_bytes(b"between " + form + b", others")
        with pytest.raises(AssertionError, match="planted"):
            look.never_there(kept(here))
    (here.home / "planted").unlink()


def forms_of(count: int, spacing: float) -> list[bytes]:
    steps = round(count / spacing)
    numbers = (struct.pack(order + kind, number) for order in "<>" for kind, number in
               (("q", steps), ("Q", steps), ("d", float(steps)), ("d", float(count))))  # fmt: skip
    return [
        *numbers,
        f"{count}".encode(),
        f"{count:,}".encode(),
        json.dumps({"n": float(count)}).encode(),
        b"%d" % steps,
    ]


def estimate_of(query: Query) -> float:
    """The first number of its first table."""
    assert query.answered is not None
    table = query.answered.published.answer.tables[0]
    return float(table.rows[0][table.columns.index("estimate")] or 0.0)


@pytest.mark.slow
@SQLITE_FIRST
@pytest.mark.parametrize("masked", [True, False])
def test_sums_of_hospitals_that_add_no_noise_are_seen(
    here: Live,
    tmp_path: Path,
    monitoring: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    masked: bool,
) -> None:
    """The broken twin: every exact sum then is where the noised one should be, and the test above fails."""
    monkeypatch.setattr("client_sdk.study.answers.noise_share", lambda grid, shares, cells, source: np.int64(0))
    look = Look(here, monitoring, caplog)
    sites = started(here, tmp_path, masked)
    with operator(here) as lead:
        for number, one in enumerate(ASKED, 1):
            lead.ask_query("registry", one)
            drive(here, lambda n=number: lead.query("registry", n).state == "answered", sites=sites)
            page = next(page for page in PAGES if page.endswith(f"/queries/{number}.json"))
            for places in (kept(here), (one for one in look.pages() if one[0] == page)):
                with pytest.raises(AssertionError):
                    look.never_there(places)
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)


def kept(here: Live) -> Iterator[tuple[str, bytes]]:
    """Every file of the coordinator, and every row of its database as text."""
    for path in here.home.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            # Gone in between, or a folder.
            if path.is_file():
                yield str(path), path.read_bytes()
    for table in Base.metadata.sorted_tables:
        rows = here.coordinator.database.read("look", lambda tx, t=table: tx.session.execute(t.select()).all())
        # As tuples: a row's own text leaves out the middle of what is long.
        yield table.name, repr([tuple(row) for row in rows]).encode()
        # Octets as they lie there.
        yield table.name, b"".join(value for row in rows for value in row if isinstance(value, bytes))


def test_honest_shares_add_up_to_the_noise_that_is_charged() -> None:
    """Five hospitals, of whom three are surely honest: their noise has at least s², and all together 5/3 of it.

    Of 20,000 sums the standard error of a variance is 1 %; five of them are a false alarm below 1e-6.
    """
    question = QUESTION.validate_python({"kind": "count", "noise_multiplier": 6.0})
    grid, coins = question.grid(), SecureRandomness()
    shares = [
        noise_share(grid, 3, 20_000, coins.of(Purpose.QUERY, party=f"h{i}", round_number=1)).astype(float)
        for i in range(5)
    ]
    honest, everybody = sum(shares[:3]), sum(shares)
    assert isinstance(honest, np.ndarray)
    assert isinstance(everybody, np.ndarray)
    assert honest.var() == pytest.approx(grid.std**2, rel=0.05)
    assert everybody.var() == pytest.approx(grid.std**2 * 5 / 3, rel=0.05)
    assert honest.std() * grid.spacing == pytest.approx(6.0, rel=0.03)


@pytest.mark.slow
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
