"""`wardround data check`: what the cells of a table mean, however they are written and stored."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tests.factories.commands import write_settings
from wardround.cli.main import build


def check(folder: Path, file: Path, code: int = 0, **parameters: Any) -> Any:
    """The counts as JSON, or the words of the refusal."""
    app = build()
    chosen = {"label": "died", "label-values": "no|yes", "column.age": "18..95"} | parameters
    settings = write_settings(folder / "study.json")
    study = json.loads(settings.read_text())
    study["training"]["task_parameters"] = {name: value for name, value in chosen.items() if value is not None}
    settings.write_text(json.dumps(study))
    arguments = ["data", "check", str(file), "--settings", str(settings), "--patient-column", "id", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else result.stderr


def csv(folder: Path, *rows: str) -> Path:
    (folder / "table.csv").write_text("\n".join(rows) + "\n")
    return folder / "table.csv"


def inputs(found: Any, name: str) -> dict[str, Any]:
    return next(use for use in found["inputs"] if use["name"] == name)


ICD = ["id,age,icd,died", "p0,30,0744,no", "p1,31,0744,yes", "p2,32,744,no", "p3,33,3893,yes"]


def test_a_code_with_a_leading_zero_is_itself_alone(tmp_path: Path) -> None:
    words = check(tmp_path, csv(tmp_path, *ICD), 1, **{"column.icd": "744|3893; missing"})
    assert "column icd: 2 of 4 values are none of the study's categories 744|3893, the first in line 2" in words
    assert "line 2, which is one of them but for capitals or leading zeros" in words
    found = check(tmp_path, csv(tmp_path, *ICD), **{"column.icd": "744|0744|3893"})
    assert (inputs(found, "icd")["missing"], inputs(found, "icd")["values"]) == (0, 4)


@pytest.mark.parametrize(
    ("cells", "declared", "line"),
    [
        (["900000000000207008", "900000000000207009", "138875005"], "900000000000207008|138875005", 3),
        (["10", "2", "1E1"], "10|2", 4),
        (["1.10", "1.1", "+1"], "1.1|2", 4),
        (["3", "3.0", "03"], "3|4", 4),
    ],
    ids=["18 digits", "an exponent", "a sign", "a zero"],
)
def test_two_spellings_are_one_category_only_where_no_doubt_is_left(
    tmp_path: Path, cells: list[str], declared: str, line: int
) -> None:
    rows = [f"p{row},30,{cell},{('no', 'yes')[row % 2]}" for row, cell in enumerate(cells)]
    words = check(tmp_path, csv(tmp_path, "id,age,code,died", *rows), 1, **{"column.code": declared})
    wanted = f"column code: 1 of 3 values are none of the study's categories {declared}, the first in line {line}"
    assert wanted in words


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64])
def test_a_missing_code_is_found_at_the_column_s_own_precision(tmp_path: Path, kind: type) -> None:
    frame = pd.DataFrame({"id": list("abcd"), "age": [40, 50, 60, 70], "died": ["no", "yes", "no", "yes"]})
    frame["temp"] = np.array([36.6, 99.9, 37.1, 99.9], kind)
    frame.to_parquet(tmp_path / "t.parquet")
    found = check(tmp_path, tmp_path / "t.parquet", **{"column.temp": "34..42; missing=37; missing-values=99.9"})
    assert (inputs(found, "temp")["missing"], inputs(found, "temp")["clipped"]) == (2, 0)


@pytest.mark.parametrize("declared", ["True|False", "false|true", "0|1"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_one_study_takes_booleans_from_every_file(tmp_path: Path, declared: str, suffix: str) -> None:
    frame = pd.DataFrame({"id": list("abcd"), "age": [40, 50, 60, 70], "smoker": [True, False, True, False]})
    frame["died"] = [False, True, False, True]
    path = tmp_path / f"table.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    labels: list[dict[str, Any]] = [{"label-values": declared}, {"label-values": None, "classes": 2}]
    for label in labels:
        parameters = {"label": "died", "column.age": "18..95", "column.smoker": declared} | label
        found = check(tmp_path, path, **parameters)
        assert (inputs(found, "smoker")["missing"], sum(found["labels"].values())) == (0, 4)
        assert set(found["labels"].values()) == {2}


def test_a_declared_category_is_no_word_for_missing(tmp_path: Path) -> None:
    rows = ["id,age,country,died", "p0,40,NA,no", "p1,50,DE,yes", "p2,60,ZA,no", "p3,60,,no"]
    found = check(tmp_path, csv(tmp_path, *rows), **{"column.country": "DE|NA|ZA; missing"})
    assert inputs(found, "country")["missing"] == 1
    found = check(tmp_path, csv(tmp_path, *rows), **{"column.country": "DE|ZA; missing"})
    assert inputs(found, "country")["missing"] == 2


@pytest.mark.parametrize("name", ["died", "Died", "DIED"])
def test_what_is_predicted_is_no_input(tmp_path: Path, name: str) -> None:
    rows = ["id,age,died", "p0,30,no", "p1,31,yes"]
    words = check(tmp_path, csv(tmp_path, *rows), 1, **{f"column.{name}": "no|yes"})
    assert f"column.{name}: this column is what the model learns to predict" in words


def test_the_label_is_found_among_the_inputs_in_decomposed_letters_too(tmp_path: Path) -> None:
    rows = ["id,age,größe", "p0,30,no", "p1,31,yes"]
    words = check(tmp_path, csv(tmp_path, *rows), 1, **{"label": "größe", "column.gro\u0308ße": "no|yes"})
    assert "this column is what the model learns to predict" in words


@pytest.mark.parametrize(
    "name",
    ["Died in ward", "died\N{NO-BREAK SPACE}in ward", "died in  ward ", "\u200bdied in ward"],
    ids=map(str, count()),
)
def test_the_label_is_found_among_the_inputs_however_it_is_spaced(tmp_path: Path, name: str) -> None:
    file = tmp_path / "table.parquet"
    outcome = ["no", "yes", "no"]
    pd.DataFrame({"id": ["a", "b", "c"], "age": [40, 50, 60], "died in ward": outcome, name: outcome}).to_parquet(file)
    words = check(tmp_path, file, 1, **{"label": "died in ward", f"column.{name}": "no|yes"})
    assert "this column is what the model learns to predict" in words


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ("15..60; missing=26; missing-values=0,-1,999", "missing-values are different values with bars between"),
        ("15..60; missing=26; missing-values=0,-1|999", "missing-values are different values with bars between"),
        ("15..60; missing=26; missing-values=0 -1", "Lists, ranges and numbers in quotation marks are none"),
        ("15..60; missing=26; missing-values=-9..-1", "Lists, ranges and numbers in quotation marks are none"),
        ("f,m", "two or more different categories 'a|b'"),
        ("1,2|3", "two or more different categories 'a|b'"),
    ],
    ids=map(str, count()),
)
def test_codes_stand_between_bars(tmp_path: Path, declared: str, words: str) -> None:
    rows = ["id,age,bmi,died", "p0,30,0,no", "p1,31,22,yes"]
    assert words in check(tmp_path, csv(tmp_path, *rows), 1, **{"column.bmi": declared})


def test_a_name_with_a_dot_stands_in_quotation_marks(tmp_path: Path) -> None:
    rows = ["id,age,died", "p0,30,no", "p1,31,yes"]
    words = check(tmp_path, csv(tmp_path, *rows), 1, column={"age": "18..95"})
    assert 'a name with a dot stands in quotation marks: "column.age"' in words


def test_a_number_that_may_mean_thousands_is_refused_by_its_line(tmp_path: Path) -> None:
    rows = ["id;age;thrombo;died", "p0;30;250.000;no", "p1;31;180.000;yes"]
    words = check(tmp_path, csv(tmp_path, *rows), 1, **{"column.thrombo": "0..1000000"})
    assert "column thrombo: 2 of 2 values are no numbers, the first in line 2" in words
    assert "declare the decimal mark" in words
    assert "250" not in words


def test_a_range_of_dates_declares_dates(tmp_path: Path) -> None:
    rows = ["id,age,admitted,died", "p0,40,2019-05-01,no", "p1,50,2021-01-01,yes", "p2,60,,no", "p3,61,1900-01-01,yes"]
    declared = "2020-01-01..2023-12-31; missing=2021-01-01; missing-values=1900-01-01"
    found = check(tmp_path, csv(tmp_path, *rows), **{"column.admitted": declared})
    assert (inputs(found, "admitted")["missing"], inputs(found, "admitted")["clipped"]) == (2, 1)
    words = check(tmp_path, csv(tmp_path, *rows, "p4,61,01.02.2021,no"), 1, **{"column.admitted": declared})
    assert "column admitted: 1 of 5 values are no dates, the first in line 6" in words
