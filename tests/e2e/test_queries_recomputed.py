"""ε of a study under masks that trains, is asked and evaluates, against its exported ledger: over real HTTP.

The comparisons are those of tests/server/services/queries/test_recomputed.py, which shows that they can fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.factories.asking import answered, answering_policy, document, drive, enrolled
from tests.factories.live_coordinator import Live, live
from tests.factories.recomputed import Charged, require_stated, require_tight
from tests.factories.settings import limit, settings
from tests.factories.studies import FakeClock

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "home", time_of_day=FakeClock(), long_poll_seconds=0.2) as coordinator:
        yield coordinator


def exported(here: Live) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The budget, and the ledger that its numbers were computed from: the study may go on in between."""
    while True:
        budget = here.operator("GET", "/v1/studies/registry/budget").json()
        page = here.operator("GET", "/v1/studies/registry/ledger").json()
        assert page["next"] is None
        if page["entries"][-1]["sha256"] == budget["ledger"]["head"].removeprefix("sha256:"):
            return budget, page["entries"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "every"),
    [
        ("sequential", 2),
        pytest.param("sequential", None, marks=pytest.mark.slow),
        pytest.param("parallel", 2, marks=pytest.mark.slow),
    ],
)
def test_a_masked_study_costs_what_its_exported_ledger_says(
    here: Live, tmp_path: Path, scheme: str, every: int | None
) -> None:
    scheduled = {"every": every, "question": {"prediction": "binary", "noise_multiplier": 2.0}}
    chosen = settings(
        scheme,
        masked=True,
        statistics={"max_queries": 2 if every is None else 4, "max_cells": 100},
        evaluation=None if every is None else {"share": 0.3, **scheduled},
        limits=[limit("instance", epsilon=18.0)],
        noise_multiplier=1.0,
        sampling_rate=0.2,
        max_steps=4,
        classical_order=6.0,
        schedule={"min_clients": 4},
    )
    sites = enrolled(here, tmp_path, chosen, policy=answering_policy())
    for site in sites:
        site.start()
    seen = list[Charged]()
    for noise in (3.0, 5.0):
        assert answered(here, sites, document(kind="count", noise_multiplier=noise)).state == "answered"
        seen.append(require_stated(*exported(here)))
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites, seconds=120.0)
    budget, entries = exported(here)
    found = require_stated(budget, entries)
    require_tight(budget, entries)
    assert found.asked["all"] == pytest.approx((3.0, 5.0), rel=1e-6)
    assert found.asked["evaluated"] == pytest.approx((2.0,) * (0 if every is None else 2), rel=1e-6)
    assert found.rounds == 4
    # Three honest hospitals' noise together, where the scheme counts on it.
    assert found.multiplier == pytest.approx(3**0.5 if scheme == "sequential" else 1.0)
    assert len(seen[0].asked["all"]) == 1
