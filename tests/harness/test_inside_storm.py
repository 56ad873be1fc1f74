"""A storm inside one process, and that each of its laws can fail: on what really happened, with one thing changed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from safetensors.numpy import load, save

from accounting.budget.budget import Budget
from accounting.budget.ledger import Entry
from client_sdk import outbox
from client_sdk.api.client import Client
from client_sdk.errors import LedgerDamaged, LostLedger, UpdateDisputed
from client_sdk.guard import ledger_file
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.messages import RoundView
from study_protocol.study.queries import Query
from tests.harness import byte_laws, charge_laws, inside_storm, laws, study_kinds
from tests.harness.inside import Weather
from tests.harness.inside_storm import InsideStorm
from tests.harness.law_broken import LawBroken
from tests.harness.study_kinds import StudyKind, settings_of

pytestmark = pytest.mark.timeout(300)
CALM = Weather(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@contextmanager
def storm_over(
    home: Path, url: str | None = None, seed: int = 1, weather: Weather | None = None, *, is_separate: bool = False
) -> Iterator[InsideStorm]:
    storm = InsideStorm(home, url, seed, "apart" if is_separate else "together", weather)
    try:
        yield storm
    finally:
        storm.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("database_url", "kind", "is_separate"),
    [
        ("sqlite", "joint", False),
        ("postgresql", "masked", True),
        *(
            pytest.param(database, kind, is_separate, marks=pytest.mark.slow)
            for database, is_separate in (("sqlite", True), ("postgresql", False))
            for kind in study_kinds.KINDS
        ),
    ],
    indirect=["database_url"],
)
def test_every_law_holds_in_a_storm(database_url: str, tmp_path: Path, kind: StudyKind, is_separate: bool) -> None:
    with storm_over(tmp_path / "storm", database_url, seed=7, is_separate=is_separate) as storm:
        storm.run("stormy", kind, 2)
        assert storm.chance.counts.total() > 20


@dataclass(frozen=True)
class Study:
    """A study of training and questions that ended well, as the laws see it."""

    operator: Client
    settings: AnySettings
    entries: list[Entry]
    views: list[RoundView]
    queries: list[Query]
    budget: Budget
    homes: Mapping[str, Path]
    sent: Mapping[str, set[str]]

    def check(self) -> None:
        """The laws, on what is here now."""
        charge_laws.spent_is_what_the_formula_says(self.settings, self.entries, self.budget)
        for name, home in self.homes.items():
            charge_laws.hospital_agrees(name, home, "calm", self.settings, self.entries, self.views)
        byte_laws.no_question_is_answered_twice(self.entries, self.queries, self.homes)
        byte_laws.bytes_sent_again_are_the_same(self.sent, self.homes, "calm")
        byte_laws.released_is_what_hospitals_made(self.operator, "calm", self.views, self.homes, self.queries)


def clear(kind: StudyKind, rounds: int = 2) -> AnySettings:
    """Settings of the kind without masks."""
    sources = (random.Random(seed) for seed in range(100))
    candidate_settings = (settings_of(kind, source, rounds) for source in sources)
    return next(
        settings
        for settings in candidate_settings
        if settings.privacy.masking is None and settings.rounds in (0, rounds)
    )


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    with storm_over(tmp_path_factory.mktemp("calm"), weather=CALM) as storm:
        settings = clear("joint")
        budget = storm.run("calm", "joint", 2, settings)
        operator = storm.operator
        yield Study(
            operator,
            settings,
            laws.whole_ledger(operator, "calm"),
            laws.whole_history(operator, "calm"),
            laws.whole_queries(operator, "calm"),
            budget,
            storm.homes,
            storm.wire.sent,
        )


@pytest.mark.slow
def test_a_calm_study_keeps_every_law(study: Study) -> None:
    study.check()
    assert sum(entry.kind == "settled" for entry in study.entries) == 4
    assert len(study.sent) == 16


class Understating:
    """A budget that says a hundredth less."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def statements(self) -> list[dict[str, Any]]:
        return [limit | {"spent": limit["spent"] and limit["spent"] * 0.99} for limit in self._budget.statements()]


class Altered:
    """An operator's client that is shown another last model."""

    def __init__(self, operator: Client, version: int) -> None:
        self._operator, self._version = operator, version

    def model(self, study: str, version: int) -> bytes:
        body = self._operator.model(study, version)
        if version != self._version:
            return body
        return save({name: np.nextafter(values, np.float32(9)) for name, values in load(body).items()})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)


def _newest_model(study: Study) -> int:
    """The last round may be a question's: which comes last depends on when hospitals consent."""
    return max(view.round for view in study.views if view.query is None and view.state == "released")


def _cancelled(study: Study) -> Study:
    (first,) = [e.sequence for e in study.entries if e.kind == "settled"][:1]
    return replace(study, entries=[replace(e, kind="cancelled") if e.sequence == first else e for e in study.entries])


def _asked_again(study: Study) -> Study:
    asked_entries = [entry for entry in study.entries if entry.kind == "asked"]
    digest = asked_entries[0].body["query"]
    tampered = [replace(e, body={**e.body, "query": digest}) if e == asked_entries[1] else e for e in study.entries]
    return replace(study, entries=tampered)


def _answer_of_another_round(study: Study) -> Study:
    first, second = study.queries
    return replace(study, queries=[first.model_copy(update={"answered": second.answered}), second])


def _other_answer(study: Study) -> Study:
    first = study.queries[0]
    assert first.answered is not None
    published = first.answered.published
    changed = published.answer.model_copy(update={"notes": ("another",)})
    signed = first.answered.model_copy(update={"published": published.model_copy(update={"answer": changed})})
    return replace(study, queries=[first.model_copy(update={"answered": signed}), *study.queries[1:]])


def _changed_sending(study: Study, digests: Callable[[set[str]], set[str]]) -> Study:
    address = next(iter(study.sent))
    return replace(study, sent={**study.sent, address: digests(study.sent[address])})


def _never_reserved(study: Study) -> Study:
    first = _first(study)
    return replace(
        study, entries=[replace(e, kind="roster", round=None) if e.round == first else e for e in study.entries]
    )


def _first(study: Study) -> int | None:
    return next(e.round for e in study.entries if e.kind == "reserved")


def _dearer(study: Study) -> Study:
    values = study.settings.as_json()
    values["privacy"]["noise_multiplier"] = 24.0
    return replace(study, settings=type(study.settings).model_validate(values))


def _unknown_update(study: Study) -> Study:
    view = study.views[-1]
    return replace(study, views=[*study.views, view.model_copy(update={"round": view.round + 1})])


@pytest.mark.slow_cases("<lambda>-follows from the events")
@pytest.mark.parametrize(
    ("changed", "law"),
    [
        (lambda study: replace(study, budget=cast(Budget, Understating(study.budget))), "follows from the events"),
        (_cancelled, "follows from the events"),
        (lambda study: replace(study, entries=study.entries[:-2]), "does not continue|follows from the events"),
        pytest.param(
            _asked_again, "one question is settled in rounds|which was never|not asked in it|another price", id="again"
        ),
        (_answer_of_another_round, "its ledger did not settle for it"),
        (_other_answer, "another answer than"),
        (lambda study: _changed_sending(study, lambda digests: digests | {"0" * 64}), "2 different bodies"),
        (lambda study: _changed_sending(study, lambda _: {"0" * 64}), "does not name"),
        (_unknown_update, "which its ledger does not know"),
        (
            lambda study: replace(study, operator=cast(Client, Altered(study.operator, _newest_model(study)))),
            "another model than its updates make",
        ),
    ],
)
def test_one_thing_changed_breaks_a_law(study: Study, changed: Callable[[Study], Study], law: str) -> None:
    with pytest.raises(LawBroken, match=law):
        changed(study).check()


@pytest.mark.parametrize(
    ("changed", "law"),
    [
        (_never_reserved, "which was never reserved"),
        (_cancelled, "is not charged"),
        (_dearer, "another price"),
        (lambda study: replace(study, entries=study.entries[:3]), "does not continue"),
    ],
)
def test_a_hospital_that_disagrees_is_noticed(study: Study, changed: Callable[[Study], Study], law: str) -> None:
    second = changed(study)
    name, home = next(iter(study.homes.items()))
    with pytest.raises(LawBroken, match=law):
        charge_laws.hospital_agrees(name, home, "calm", second.settings, second.entries, second.views)


def _forget_to_sync_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "write_durably", lambda path, data, mode=0o600: path.write_bytes(data))


def _forget_to_sync_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = ledger_file.connect

    def connected(path: Path, *, read_only: bool) -> Any:
        connection = connect(path, read_only=read_only)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    monkeypatch.setattr(ledger_file, "connect", connected)


@pytest.mark.slow
@pytest.mark.parametrize("defect", [_forget_to_sync_files, _forget_to_sync_commits])
def test_a_hospital_that_forgets_to_sync_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: Callable[[pytest.MonkeyPatch], None]
) -> None:
    defect(monkeypatch)
    weather = replace(CALM, hospital_kill_rate=0.3)
    errors = (LedgerDamaged, LostLedger, UpdateDisputed, LawBroken)
    with storm_over(tmp_path / "storm", weather=weather) as storm, pytest.raises(errors):
        storm.run("unsynced", "plain", 6, clear("plain", 6))


def test_the_page_shows_the_sums_of_all_recorded_runs() -> None:
    runs = json.loads(inside_storm.RECORD.read_text())["runs"]
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    heading = next(at for at, cells in enumerate(rows) if cells[:2] == ["studies", "minutes"])
    row = dict(zip(rows[heading], rows[heading + 2], strict=True))
    assert int(row.pop("studies")) == sum(sum(run["studies"].values()) for run in runs)
    assert int(row.pop("charged rounds")) == sum(run["charged rounds"] for run in runs)
    assert float(row.pop("minutes")) == round(sum(run["minutes"] for run in runs), 1)
    faults = sum(sum(run["faults"].values()) for run in runs)
    assert int(row.pop("all")) == sum(map(int, row.values())) == faults >= 10_000
    assert f"(`chaos_inside.json`): {len(runs)} runs" in page


def test_a_secret_in_a_log_is_noticed(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"message": "key wrk_17_swordfish"}\n')
    byte_laws.no_secret_is_logged([log, tmp_path / "none"], {"trout"})
    with pytest.raises(LawBroken, match="holds secret"):
        byte_laws.no_secret_is_logged([log], {"trout", "swordfish"})
