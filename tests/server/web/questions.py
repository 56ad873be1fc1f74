"""Studies with questions for the tests of the dashboard: answered, refused, waiting, ended."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.factories.asking import Site, answered, answering_policy, document, drive, enrolled, operator, with_postcodes
from tests.factories.live_coordinator import Live
from tests.factories.settings import statistics_settings

NAMES = ("alpha", "beta")
AGES = {"column": "age", "edges": [25, 50, 75]}
TABLE = {
    "kind": "table",
    "title": "=HYPERLINK(<b>age</b>)",
    "noise_multiplier": 6.0,
    "variables": [{"column": "ill", "categories": ["0", "1"]}, AGES],
}
NUMBERS = {"kind": "moments", "noise_multiplier": 12.0, "numbers": [{"column": "age", "low": 0, "high": 100}]}
DENIED = {"kind": "table", "noise_multiplier": 6.0, "variables": [{"column": "postcode", "categories": ["1"]}]}

# 53 to 361 patients are in each of 8 cells and none in the other 12, under noise of deviation 8.5. That fewer than two
# of the 12 are suppressed, or all of the 8, happens less than twice in a million runs.
_RECORDS = partial(with_postcodes, count=800)


def write(here: Live, home: Path) -> None:
    """`registry`: 1 answered with rows suppressed, 2 answered, 3 refused, then stopped; `quiet`: 1 waits; `full`: ended
    by itself, with as many answers as it takes. No hospital goes on afterwards."""
    policy = answering_policy(statistics={"queries": "allow", "denied_columns": ["postcode"]})
    chosen = statistics_settings(masked=False, epsilon=3.0, suppress_below=6)
    sites = enrolled(here, home / "registry", chosen, names=NAMES, policy=policy, data=_RECORDS)
    _ask(here, sites, "registry", TABLE, NUMBERS, DENIED)
    last = enrolled(
        here,
        home / "full",
        statistics_settings(masked=False, max_queries=1),
        names=NAMES,
        policy=policy,
        study="full",
        data=_RECORDS,
    )
    _ask(here, last, "full", TABLE)
    enrolled(here, home / "quiet", statistics_settings(masked=False), names=NAMES, study="quiet")
    with operator(here) as lead:
        lead.ask_query("quiet", document(**TABLE))


def _ask(here: Live, sites: list[Site], study: str, *questions: dict[str, object]) -> None:
    for site in sites:
        site.start()
    for question in questions:
        answered(here, sites, document(**question), study)
    if study == "registry":
        assert here.operator("POST", f"/v1/studies/{study}/stop").status_code == 200
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)
