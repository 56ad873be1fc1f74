"""`wardround query columns`: lines for settings from answers, with noise and without."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from private_learning.tasks.columns import read_columns
from private_learning.tasks.declared_columns import CategoryColumn, NumberColumn
from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.quantiles import Quantiles
from study_protocol.queries.ready import READY
from study_protocol.queries.variables import Range, Variable
from study_protocol.study.queries import Query, QueryDocument
from tests.factories.commands import write_settings
from tests.factories.questions import exact
from wardround.cli.lead.typical_columns import columns_of
from wardround.cli.main import build

DRAW = np.random.default_rng(4)
COUNT = 800
PATIENTS: dict[str, Any] = {
    "crp": np.exp(2 + DRAW.normal(size=COUNT)),
    "bmi": 27 + 4 * DRAW.normal(size=COUNT),
    "ward": np.where(DRAW.uniform(size=COUNT) < 0.93, "a", "b").astype(object),
}
COLUMNS = {"column.crp": "0..400; missing=10", "column.bmi": "10..70", "column.ward": "a|b", "column.other": "0..1"}
DECLARED = (
    Range(column="crp", low=0, high=400),
    Range(column="bmi", low=10, high=70),
    Variable(column="ward", categories=("a", "b")),
    Range(column="unused", low=0, high=1),
)
ASKED = READY["typical"](DECLARED[:3], 6.0)


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    return write_settings(tmp_path / "study.json", training={"task_parameters": {"label": "ill", **COLUMNS}})


def query(path: Path, asked: Any, std: float, *, answered: bool = True) -> Path:
    total = exact(asked, PATIENTS) + std * np.random.default_rng(8).normal(size=asked.cells)
    document = QueryDocument.model_validate({"question": asked.model_dump(mode="json")})
    published = {
        "study": "registry",
        "query": 1,
        "sha256": document.digest(),
        "round": 1,
        "hospitals": 4,
        "noise": {"guaranteed": max(std, 1e-9), "present": max(std, 1e-9), "spacing": 1e-3},
        "answer": asked.answer(NoisedSum(total, std, 1)).model_dump(mode="json"),
        "warning": "noise protects patients, and no hospital",
        "ledger_entries": 1,
        "ledger_sha256": "0" * 64,
    }
    body = {
        "study": "registry",
        "number": 1,
        "sha256": document.digest(),
        "document": document.model_dump(mode="json"),
        "state": "answered" if answered else "waiting",
        "created_at": datetime(2026, 1, 1, tzinfo=UTC).isoformat(),
        **dict.fromkeys(("round", "reason", "consents")),
        **dict.fromkeys(("allowed", "refused", "needed"), 0),
        "answered": {"published": published, "signature": "x"} if answered else None,
    }
    path.write_text(json.dumps(body))
    return path


def columns(*arguments: str | Path) -> Result:
    return CliRunner().invoke(build(), ["query", "columns", *map(str, arguments)])


@pytest.mark.parametrize("std", [0.0, 1.0, 4.0], ids=str)
def test_moments_become_typical_ranges_logarithms_and_frequencies(settings: Path, tmp_path: Path, std: float) -> None:
    done = columns(settings, query(tmp_path / "answer.json", ASKED, std), "--json")
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert shown["unsure"] == []
    bmi, crp, ward = read_columns(shown["columns"])
    assert isinstance(bmi, NumberColumn)
    assert isinstance(crp, NumberColumn)
    assert isinstance(ward, CategoryColumn)
    assert ward.shares == pytest.approx((0.925, 0.075), abs=0.03)
    assert bmi.spread == pytest.approx((20, 34), abs=3)
    assert not bmi.log
    # The quantiles of the log-normal variable are 1.4 and 38.
    assert crp.log
    assert crp.missing == 10
    assert crp.spread[0] < 4
    assert 20 < crp.spread[1] < 70
    assert tomllib.loads(columns(settings, tmp_path / "answer.json").stdout) == shown["columns"]


def test_what_the_noise_decides_is_left_as_it_is_declared(settings: Path, tmp_path: Path) -> None:
    done = columns(settings, query(tmp_path / "answer.json", ASKED, 400.0))
    assert done.exit_code == 0, done.output
    assert "column.crp" not in done.stdout
    assert "too much noise to say anything of crp" in done.stderr


def test_quantiles_become_a_typical_range(settings: Path, tmp_path: Path) -> None:
    asked = Quantiles(kind="quantiles", noise_multiplier=6, number=DECLARED[0], leaves=256, quantiles=(0.05, 0.5, 0.95))
    done = columns(settings, query(tmp_path / "answer.json", asked, 0.0))
    assert done.exit_code == 0, done.output
    (crp,) = read_columns(tomllib.loads(done.stdout))
    assert isinstance(crp, NumberColumn)
    assert crp.log
    assert crp.spread[0] <= 1.5
    assert 33 < crp.spread[1] < 45
    quartiles = asked.model_copy(update={"quantiles": (0.25, 0.5, 0.75)})
    refused = columns(settings, query(tmp_path / "other.json", quartiles, 0.0))
    assert refused.exit_code == 1
    assert "ask for 0.05, 0.5 and 0.95" in refused.stderr


@pytest.mark.parametrize(
    ("asked", "answered", "words"),
    [
        (READY["table-one"](DECLARED[:1], 6.0), True, "is of kind tables: moments or quantiles are needed"),
        (ASKED, False, "has no answer yet"),
        (READY["typical"](DECLARED[3:], 6.0), True, "no answer is about a column of"),
    ],
    ids=["kind", "waiting", "others"],
)
def test_other_answers_are_refused_in_one_sentence(
    settings: Path, tmp_path: Path, asked: Any, answered: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PATIENTS, "unused", DRAW.uniform(size=COUNT))
    done = columns(settings, query(tmp_path / "answer.json", asked, 0.0, answered=answered))
    assert done.exit_code == 1
    assert words in " ".join(done.stderr.split())


def test_only_columns_of_the_settings_are_found(tmp_path: Path) -> None:
    asked = Query.model_validate_json(query(tmp_path / "answer.json", ASKED, 0.0).read_bytes())
    (bmi,) = read_columns({"column.bmi": "10..70"})
    assert [name for name, _ in columns_of(asked, {"bmi": bmi})] == ["bmi"]
    assert list(columns_of(asked, {})) == []


def test_a_file_that_holds_no_query_says_how_one_is_written(settings: Path) -> None:
    done = columns(settings, settings)
    assert done.exit_code == 1
    assert "query show STUDY NUMBER --json" in " ".join(done.stderr.split())
