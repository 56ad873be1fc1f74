"""Histories become sequences of tokens, and models that look at nothing but a patient's own events."""

from __future__ import annotations

import csv
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from private_learning.records import DataError, Histories, Table, load, read_csv
from private_learning.tasks import TaskError
from private_learning.tasks import load as load_task
from private_learning.tasks.sequences import CodeSequences
from private_learning.tasks.task import InputUse
from private_learning.training import LocalTraining
from private_learning.training.weights import weights_of
from study_protocol.randomness.source import SeededRandomness
from tests.factories.made_up import made_up
from tests.factories.settings import settings
from wardround.demo.scenarios import data_folder

DRUGS, ILLS = "code=atc; time=day; codes=A|B", "code=icd; time=day; codes=X|Y"
PLAIN = {"label": "died", "length": 4, "events.drugs": DRUGS, "events.ills": ILLS}
# Tokens: 1 A, 2 B, 3 another drug; 4 X, 5 Y, 6 another diagnosis.
KINDS = ("gru", "lstm", "transformer")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def histories(drugs: dict[str, Any] | None = None, **patients: Any) -> Histories:
    whole = {"patient": ["a", "b", "c"], "died": [0, 1, 0], "age": [20.0, 90.0, 55.0]} | patients
    given = drugs or {"patient": ["a", "b", "a", "zz"], "atc": ["A", "B", None, "A"], "day": [3.0, 1.0, -2.0, 9.0]}
    ills = {"patient": ["b", "a", "b", "b", "b"], "icd": ["Y", "X", "X", "Q", "Y"], "day": [1.0, 3.0, 5.0, 0.0, 7.0]}
    events = {name: Table.of(of, patient_column="patient") for name, of in {"drugs": given, "ills": ills}.items()}
    return Histories.with_events(Table.of(whole, patient_column="patient"), events)


def tokens(task: Any, records: Histories) -> list[list[int]]:
    found = task.inputs(records)[:, task.features :]
    return [[int(token) for token in row] for row in found]


def test_events_of_all_tables_stand_in_their_order_and_the_newest_are_kept() -> None:
    task = load_task("sequence", PLAIN)
    # a: nothing known on day −2, then A and X on day 3. b: five events, of which the first is too old. c: none.
    assert tokens(task, histories()) == [[3, 1, 4, 0], [2, 5, 4, 5], [0, 0, 0, 0]]
    assert tokens(task, histories().take([1, 0])) == [[2, 5, 4, 5], [3, 1, 4, 0]]
    assert tokens(load_task("sequence", PLAIN | {"length": 1}), histories()) == [[4], [5], [0]]
    assert task.inspect(histories()) == (
        InputUse("events drugs", 3, missing=1, clipped=0, other=0, of_others=1),
        InputUse("events ills", 5, missing=0, clipped=0, other=1, of_others=0),
    )


def test_the_order_of_rows_changes_nothing() -> None:
    task, draw = load_task("sequence", PLAIN | {"length": 20}), np.random.default_rng(1)
    n = 60
    rows = {
        "patient": draw.choice(["a", "b"], n),
        "atc": draw.choice(["A", "B", "?"], n),
        "day": draw.integers(0, 4, n),
    }
    order = draw.permutation(60)
    mixed = {name: values[order] for name, values in rows.items()}
    assert tokens(task, histories(rows)) == tokens(task, histories(mixed))


def test_columns_of_the_table_of_patients_stand_before_the_tokens() -> None:
    task = load_task("sequence", PLAIN | {"column.age": "20..90"})
    torch.testing.assert_close(task.inputs(histories())[:, 0], torch.tensor([-1.0, 1.0, 0.0]))
    assert tokens(task, histories())[0] == [3, 1, 4, 0]
    assert task.dataset(histories()).targets.tolist() == [0, 1, 0]


@pytest.mark.slow
def test_a_model_without_noise_finds_what_decides() -> None:
    """Whoever has many of the first code is ill: a few steps tell more than the commonest class."""
    task = load_task("sequence", PLAIN | {"length": 30, "hidden": 16, "embedding": 8})
    data = task.dataset(made_up(task, 200))
    how = {"algorithm": "fedavg", "local_steps": 40, "learning_rate": 1.0, "local_optimiser": {"name": "momentum"}}
    chosen = settings(
        training=how, sampling_rate=1.0, expected_batch_size=200.0, max_steps=40, noise_multiplier=1e-4, clip_norm=1.0
    )
    torch.manual_seed(3)
    weights = weights_of(task.model())
    update = LocalTraining(task, data, chosen, SeededRandomness(1, allow_insecure=True)).update(weights, None)
    model = task.model().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.as_tensor(weights[name] + update[name]))
        assert task.metrics(model(data.inputs), data.targets)["accuracy"] > 0.75


@pytest.mark.slow
def test_stays_of_the_eicu_demo_are_histories(tmp_path: Path) -> None:
    """Real tables: one row for each patient; unit types and admission sources of all of a patient's stays."""
    path = data_folder() / "eicu_demo" / "patient.csv.gz"
    if not path.exists():
        pytest.skip(f"no {path}: set WARDROUND_DATA")
    stays = read_csv(path, patient_column="uniquepid").columns
    whose = read_csv(path).columns["uniquepid"]
    died = {who: int((stays["hospitaldischargestatus"][whose == who] == "Expired").any()) for who in set(whose)}
    _write(tmp_path / "patients.csv", {"patient": list(died), "died": list(died.values())})
    for name, column in {"units": "unittype", "sources": "hospitaladmitsource"}.items():
        when = stays["patientunitstayid"]
        _write(tmp_path / f"{name}.csv", {"patient": whose, "what": stays[column], "when": when})
    task = load_task(
        "sequence",
        {
            "label": "died",
            "length": 6,
            "events.units": "code=what; time=when; codes=Med-Surg ICU|MICU|SICU|CCU-CTICU",
            "events.sources": "code=what; time=when; codes=Emergency Department|Operating Room|Floor",
        },
    )
    records = load(tmp_path)
    data = task.dataset(records)
    found = tokens(task, records)
    assert len(data) == len(died) == 1841
    # One event of each table for each stay, and tokens of one stay stand together.
    stays_of = {who: int((whose == who).sum()) for who in died}
    assert [len([t for t in row if t]) for row in found] == [min(6, 2 * stays_of[who]) for who in data.patients]
    assert int(data.targets.sum()) == sum(died.values())


def _write(path: Path, columns: dict[str, Any]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


@pytest.mark.parametrize(
    ("drugs", "patients", "words"),
    [
        ({"patient": ["a"], "atc": ["A"], "day": [None]}, {}, "events drugs: column day: 1 of 1 events have no time"),
        ({"patient": ["a"], "atc": ["A"], "day": ["3 May"]}, {}, "1 of 1 events have a time that is none"),
        (
            {"patient": ["a", "a", "a"], "atc": ["A", "A", "A"], "day": ["2020-01-01", "5", "1.2.2020"]},
            {},
            "first in row 3, which is a date with its year last: declare the order of day and month",
        ),
        ({"patient": ["a"], "atc": ["A"], "day": ["1.234"]}, {}, "declare the decimal mark of the data set"),
        ({"patient": ["a"], "code": ["A"], "day": [1.0]}, {}, "events drugs: the table lacks 1 of the study's columns"),
        (None, {"patient": ["a", "a", "c"]}, "1 of 3 rows are of a patient who has another"),
        (None, {"died": [0, 5, 1]}, "not whole numbers from 0 to 1"),
    ],
    ids=["no time", "a text", "a date", "thousands", "another column", "a patient twice", "no class"],
)
def test_tables_that_are_none_are_refused(drugs: Any, patients: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        load_task("sequence", PLAIN).dataset(histories(drugs, **patients))


def test_a_table_that_is_not_there_and_records_of_another_kind_are_refused() -> None:
    with pytest.raises(DataError, match=r"no table of events 'visits'\. There are 'drugs', 'ills'"):
        load_task("sequence", {"label": "died", "length": 4, "events.visits": DRUGS}).dataset(histories())
    with pytest.raises(DataError, match=r"takes a folder of tables: patients\.csv"):
        load_task("sequence", PLAIN).dataset(Table.of({"died": [0, 1]}))
    with pytest.raises(DataError, match="say which column names the patient"):
        Histories.with_events(Table.of({"died": [0, 1]}), {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"events.drugs": "code=atc; time=day"}, "codes is missing"),
        ({"events.drugs": "code=atc; time=day; codes=A|A"}, "different words with bars between"),
        ({"events.drugs": "code=atc; code=icd; time=day; codes=A"}, "each of the three once"),
        ({"events.drugs": 3}, "code=COLUMN; time=COLUMN"),
        ({"length": 0}, "length"),
        ({"model": "transformer", "embedding": 30}, "multiple of heads"),
        ({"heads": 2}, "heads belongs to"),
        ({"model": "rnn"}, "model"),
    ],
    ids=["no codes", "one twice", "a word twice", "a number", "no length", "heads", "heads of a gru", "no such model"],
)
def test_parameters_that_make_no_task_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        load_task("sequence", PLAIN | changes)
    with pytest.raises(TaskError, match="at least one parameter events"):
        load_task("sequence", {"label": "died", "length": 4})


CODES = {"label": "ill", "length": 10, "embedding": 16, "events.drugs": "code=atc; time=day; codes=A|B|C|D"}


def coded(**more: Any) -> CodeSequences:
    task = load_task("sequence", CODES | more)
    assert isinstance(task, CodeSequences)
    return task


@pytest.mark.parametrize(
    "more",
    [{"hidden": 20, "layers": 2}, {"model": "lstm", "column.age": "18..90"}, {"model": "transformer", "layers": 2}],
    ids=["gru", "lstm", "transformer"],
)
def test_drawn_weights_have_the_names_shapes_and_types_of_the_model(more: dict[str, Any]) -> None:
    task = coded(**more)
    drawn, made = task.initial_weights(np.random.default_rng(1)), weights_of(task.model())
    assert {name: (array.shape, array.dtype) for name, array in drawn.items()} == {
        name: (array.shape, array.dtype) for name, array in made.items()
    }
    assert not drawn["embed.weight"][0].any()


@pytest.mark.parametrize(("kind", "gates"), [("gru", 3), ("lstm", 4)])
def test_recurrent_weights_are_uniform_within_one_over_the_root_of_the_units(kind: str, gates: int) -> None:
    drawn = coded(model=kind, hidden=100).initial_weights(np.random.default_rng(2))
    bound = 1 / math.sqrt(100)
    for name in ("units.weight_ih_l0", "units.weight_hh_l0", "units.bias_ih_l0"):
        assert drawn[name].shape[0] == gates * 100
        assert 0.97 * bound < np.abs(drawn[name]).max() <= bound
        # The variance of a uniform number in ±b is b²/3: of 300 and more within a quarter.
        assert drawn[name].var() == pytest.approx(bound**2 / 3, rel=0.25)


def test_attention_is_drawn_by_glorot_s_rule_and_its_constants_begin_at_zero() -> None:
    drawn = coded(model="transformer", hidden=24).initial_weights(np.random.default_rng(3))
    weight = drawn["units.layers.0.self_attn.in_proj_weight"]
    # 16 numbers in, three maps of 16 out.
    bound = math.sqrt(6 / (16 + 3 * 16))
    assert 0.97 * bound < np.abs(weight).max() <= bound
    for name in ("self_attn.in_proj_bias", "self_attn.out_proj.bias", "norm1.bias", "norm2.bias"):
        assert not drawn[f"units.layers.0.{name}"].any()
    assert (drawn["units.layers.0.norm1.weight"] == 1).all()
