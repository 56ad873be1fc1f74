"""Every ε that recorded studies state follows from their ledgers, by a reader that has none of our code.

The recordings are of every scheme: masked, sampled, with questions alone, with both, with evaluations, with reports
told at the end, with rounds charged in full and cancelled, under way and finished.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.goldens.combinations import Combination
from tests.goldens.record import first
from tests.vectors import record, second_formats
from tests.vectors.second_reader import check

NAMES = (*record.CLEAR, *record.MASKED)
Json = dict[str, Any]


def ledger_of(name: str) -> str:
    return (record.FOLDER / f"{name}.jsonl").read_text()


def statement_of(name: str) -> str:
    return (record.FOLDER / f"{name}.statement.json").read_text()


@pytest.mark.quick("distributed-noised", "joint-at-end", "parallel-sampled", "scheduled", "sequential-papers")
@pytest.mark.parametrize("name", NAMES)
def test_every_epsilon_of_a_recorded_study_follows_from_its_ledger(name: str) -> None:
    assert check(ledger_of(name), statement_of(name)) == []


def test_the_recordings_are_of_every_kind() -> None:
    ledgers = [[json.loads(line) for line in ledger_of(name).splitlines()[:-1]] for name in NAMES]
    kinds = {entry["kind"] for entries in ledgers for entry in entries}
    free = {"opened", "roster", "operated", "released"}
    assert kinds == free | {"reserved", "asked", "settled", "charged-in-full", "cancelled", "finished"}
    plans = [entries[0]["body"]["plan"] for entries in ledgers]
    schemes = {"client", "client-distributed", "parallel", "sequential", "joint", "statistics"}
    assert {plan["scheme"] for plan in plans} == schemes
    assert {plan["disclosure"] for plan in plans if plan["scheme"] != "statistics"} == {"plain", "noised", "at-end"}
    estimated = [plan["bayesian"] for plan in plans if plan.get("bayesian")]
    for name, choices in (("adversary", 2), ("conversion", 2), ("composition", 2), ("estimator", 2)):
        assert len({one[name] for one in estimated}) == choices


def _slow_but(*quick: str) -> list[Any]:
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]


@pytest.mark.quick("questions")
@pytest.mark.parametrize("name", _slow_but("client-central", "joint-at-end", "mixed", "questions"))
def test_the_program_still_states_what_its_recordings_do(name: str, tmp_path: Path) -> None:
    """Recorded anew: the reader reads what the program writes now, and every ε is what it was.

    Real training may differ in its last bits elsewhere, and so in a count: there the reader alone decides.
    """
    coordinator = record.run(name, tmp_path)
    ledger, statement = record.exported(coordinator, name)
    coordinator.database.dispose()
    assert check(ledger, statement) == []
    if name in record.MASKED:
        return
    now, then = (_epsilons(json.loads(text)) for text in (statement, statement_of(name)))
    assert now == pytest.approx(then, rel=1e-9)


def _epsilons(statement: Json) -> list[float]:
    found: list[float] = []
    for limit in statement["limits"]:
        found += [limit[part] or 0.0 for part in ("spent", "reserved", "remaining")]
        found += [report["epsilon"] for report in limit["reports"]]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("chosen", first(), ids=str)
def test_every_epsilon_of_the_goldens_follows_from_their_ledgers(chosen: Combination, tmp_path: Path) -> None:
    """Every pair of choices within every scheme, with real training and real sums."""
    coordinator = record.coordinator_in(tmp_path, record.FakeClock())
    record.run_masked(coordinator, "golden", chosen)
    ledger, statement = record.exported(coordinator, "golden")
    coordinator.database.dispose()
    assert check(ledger, statement) == []


# -- planted changes


def chained(lines: list[Json], *, signed: bool = True) -> str:
    """The same entries on a new chain under a new head; with the coordinator's own key if `signed`."""
    previous = "0" * 64
    for place, entry in enumerate(lines[:-1], start=1):
        entry |= {"sequence": place, "previous": previous}
        entry["sha256"] = previous = second_formats.entry_hash(entry)
    head = lines[-1]["head"]
    head["head"] |= {"entries": len(lines) - 1, "sha256": previous}
    if signed:
        head["signature"] = second_formats.sign_document(record.SEED, "wardround/1/ledger-head", head["head"])
    return written(lines)


def written(lines: list[Json]) -> str:
    return "\n".join(json.dumps(line) for line in lines)


def read(name: str) -> list[Json]:
    return [json.loads(line) for line in ledger_of(name).splitlines()]


def place_of(lines: list[Json], kind: str) -> int:
    """Of the last entry of this kind."""
    return max(i for i, line in enumerate(lines) if line.get("kind") == kind)


def change_report(lines: list[Json]) -> None:
    # Of the round before the one that was charged in full: later bounds rest on it.
    at = max(i for i in range(place_of(lines, "charged-in-full")) if lines[i]["kind"] == "settled")
    report = lines[at]["body"]["report"]
    report |= {"filter": report["filter"] / 2, "moments": [moment / 2 for moment in report["moments"]]}


def drop_charge(lines: list[Json]) -> None:
    del lines[place_of(lines, "charged-in-full")]


def swap_rounds(lines: list[Json]) -> None:
    at = place_of(lines, "cancelled")
    lines[at], lines[at - 1] = lines[at - 1], lines[at]


def charge_as_cancelled(lines: list[Json]) -> None:
    lines[place_of(lines, "charged-in-full")]["kind"] = "cancelled"


def add_noise(lines: list[Json]) -> None:
    lines[0]["body"]["plan"]["noise_multiplier"] *= 1.001


def change_settings(lines: list[Json]) -> None:
    lines[0]["body"]["settings"]["privacy"]["clip_norm"] = 2.0


def invent_kind(lines: list[Json]) -> None:
    lines[place_of(lines, "cancelled")]["kind"] = "forgiven"


def change_roster(lines: list[Json]) -> None:
    lines[-1]["roster"]["members"].pop()


CHANGES: list[Callable[[list[Json]], None]] = [
    change_report,
    drop_charge,
    swap_rounds,
    charge_as_cancelled,
    add_noise,
    change_settings,
    invent_kind,
    change_roster,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("effort", ["left", "chained", "signed"])
def test_a_changed_ledger_is_found(change: Callable[[list[Json]], None], effort: str) -> None:
    """As it is; on a new chain; and signed again with the coordinator's key, beside the statement that was served."""
    lines = read("parallel-sampled")
    change(lines)
    text = written(lines) if effort == "left" else chained(lines, signed=effort == "signed")
    statement = json.loads(statement_of("parallel-sampled"))
    if effort == "signed":
        head = lines[-1]["head"]
        said = {"entries": head["head"]["entries"], "head": f"sha256:{head['head']['sha256']}"}
        statement["ledger"] = said | {"signature": head["signature"]}
    assert check(text, json.dumps(statement)) != []


def test_the_same_ledger_chained_and_signed_again_passes() -> None:
    """What the changes above are found by is the change and not how they are written down."""
    lines = read("parallel-sampled")
    assert chained(lines).split("\n") == written(read("parallel-sampled")).split("\n")
    assert check(chained(lines), statement_of("parallel-sampled")) == []


@pytest.mark.slow_cases(
    "client-sampled",
    "fixed-plan",
    "gaussian-filter",
    "mixed",
    "parallel-finished",
    "planned-pending",
    "questions",
)
@pytest.mark.parametrize("name", NAMES)
def test_a_charge_less_is_found_by_its_epsilon_alone(name: str) -> None:
    """The last charged round was never there; all is chained and signed again, and the statement's digest agrees."""
    lines = read(name)
    end = max(i for i, line in enumerate(lines) if line.get("kind") in ("settled", "charged-in-full"))
    gone = {i for i, line in enumerate(lines) if line.get("round") == lines[end]["round"]}
    assert len(gone) >= 2
    lines = [line for i, line in enumerate(lines) if i not in gone]
    last = lines[-2]["body"]
    if last.get("report") is not None and lines[-2]["kind"] == "finished":
        del last["report"][-1]
    statement = json.loads(statement_of(name))
    statement["round"] = max(line.get("round") or 0 for line in lines)
    _sign_over(lines, statement)
    wrong = check(written(lines), json.dumps(statement))
    assert wrong
    assert not any("digest" in reason or "another ledger" in reason or "entry" in reason for reason in wrong)


def _sign_over(lines: list[Json], statement: Json) -> None:
    trains = lines[0]["body"]["plan"]["scheme"] != "statistics"
    said = {"limits": [dict(limit) for limit in statement["limits"]], "percentiles": statement["percentiles"]}
    for limit in said["limits"]:
        # Loss distributions take long, and are in no digest.
        limit |= {"reports": []} if trains and limit["definition"] == "classical" else {}
    lines[-2]["body"]["statement_sha256"] = second_formats.digest(said)
    chained(lines)
    head = lines[-1]["head"]
    statement["ledger"] = {
        "entries": head["head"]["entries"],
        "head": f"sha256:{head['head']['sha256']}",
        "signature": head["signature"],
    }


def numbers_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where a JSON value has numbers."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [found for name, item in items for found in numbers_in(item, (*path, name))]
    return [path] if isinstance(value, int | float) and not isinstance(value, bool) else []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["questions", "sequential-papers", pytest.param("client-central", marks=pytest.mark.slow)]
)
def test_a_changed_epsilon_of_a_statement_is_found(name: str) -> None:
    """Every number of the limits, of the reports beside them and of the shares of a population, one by one."""
    statement = json.loads(statement_of(name))
    parts = {"limits": statement["limits"], "percentiles": statement["percentiles"]}
    places = [path for path in numbers_in(parts) if "orders" not in path]
    epsilons = [path for path in places if path[-1] in ("epsilon", "delta", "spent", "remaining", "used", "allowed")]
    assert len(epsilons) >= 8
    for path in epsilons:
        changed = copy.deepcopy(statement)
        holder: Any = changed
        for part in path[:-1]:
            holder = holder[part]
        holder[path[-1]] = holder[path[-1]] * 0.98 or 0.01
        lines = read(name)
        if name == "questions":
            # Signed over, so that the number itself must be found.
            _sign_over(lines, changed)
        assert check(written(lines), json.dumps(changed)) != [], path
