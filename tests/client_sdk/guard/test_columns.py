"""A column that the officer denies is read by nothing, however its name is written."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_sdk.errors import ConfigurationError, PolicyRefused
from client_sdk.guard.columns import as_read, denied, readable, trained_columns
from client_sdk.guard.policy import QueryRules
from client_sdk.guard.rules import require_allowed
from client_sdk.study.patients import AskedPatients
from client_sdk.study.preparation import able, check_data
from client_sdk.study.remaining import remaining
from private_learning.records import Examples, Histories, Records, Table, load
from study_protocol.study.settings import StudySettings
from tests.factories.hospitals import plain_policy
from tests.factories.settings import TASK_PARAMETERS, settings

# Each is drawn like the first, or nearly.
WRITTEN = {
    "capitals": "PostCode",
    "space behind": "postcode ",
    "space within": "post code",
    "no-break space": "post\u00a0code",
    "tab": "postcode\t",
    "zero-width space": "post\u200bcode",
    "joiner": "post\u034fcode",
    "variation selector": "postcode\ufe0f",
    "soft hyphen": "post\u00adcode",
    "tag": "postcode\U000e0041",
    "filler": "postcode\u3164",
    "wide letters": "\uff50\uff4f\uff53\uff54code",
    "ligature": "po\ufb06code",
    "direction": "\u202epostcode",
    "blank braille": "postcode\u2800",
}


def table(name: str, **more: Any) -> Table:
    columns: dict[str, Any] = {name: ["1", "2", "3"], "age": [30.0, 40.0, 50.0], "ill": [0, 1, 0], **more}
    return Table.of({**columns, "id": ["a", "b", "c"]}, patient_column="id")


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN.keys())
def test_a_denied_column_is_not_in_the_records_however_it_is_written(written: str) -> None:
    rules = QueryRules(denied_columns=frozenset({"postcode"}))
    assert set(readable(table(written), rules).columns) == {"age", "ill"}  # type: ignore[attr-defined]
    # And the other way round: the officer wrote it so.
    rules = QueryRules(denied_columns=frozenset({written}))
    assert set(readable(table("postcode"), rules).columns) == {"age", "ill"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_composed_and_decomposed_letters_are_one_name(form: str) -> None:
    rules = QueryRules(denied_columns=frozenset({"Größe"}))
    written = unicodedata.normalize(form, "GRÖSSE")  # type: ignore[arg-type]
    assert denied(rules, [written, "Grosse"]) == [written]


@given(st.text(min_size=1, max_size=20))
def test_one_reading_is_enough(name: str) -> None:
    assert as_read(as_read(name)) == as_read(name)


def test_a_denied_name_that_no_column_has_is_refused_with_the_near_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"denied_columns names 'postcod', .* Similar names: 'Postcode'"):
        readable(table("Postcode"), QueryRules(denied_columns=frozenset({"postcod"})))
    with pytest.raises(ConfigurationError, match=r"denies nothing\. Correct"):
        readable(table("Postcode"), QueryRules(denied_columns=frozenset({"zzz"})))


def test_images_have_no_columns_to_be_denied() -> None:
    images = Examples.of(np.zeros((3, 2, 2)), [0, 1, 0])
    assert readable(images, QueryRules(denied_columns=frozenset({"postcode"}))) is images


@pytest.mark.parametrize("kind", ["images", "DICOM", "NIfTI"])
@pytest.mark.parametrize("lazy", [False, True], ids=["in memory", "lazy"])
def test_a_label_of_a_list_is_a_column_like_others(tmp_path: Path, kind: str, lazy: bool) -> None:
    names = labelled_folder(tmp_path, kind)
    listed = "".join(f"{name},{row},0\n" for row, name in enumerate(names))
    (tmp_path / "labels.csv").write_text(f"file,ill,HIV status\n{listed}")
    records = load(tmp_path, lazy=lazy).take([1, 0])
    for rules in ({"denied_columns": ["hivStatus"]}, {"allowed_columns": ["ill"]}):
        with pytest.raises(ConfigurationError, match=r"lets nothing read 'HIV status'.*take the column out"):
            remaining(records, plain_policy(statistics=rules))
    for rules in ({"denied_columns": ["postcode"]}, {"allowed_columns": ["ILL", "hiv status"]}):
        assert remaining(records, plain_policy(statistics=rules)).records is records


def labelled_folder(folder: Path, kind: str) -> list[str]:
    if kind == "images":
        pillow: Any = pytest.importorskip("PIL.Image")
        for name in ("a.png", "b.png"):
            pillow.new("L", (4, 4)).save(folder / name)
        return ["a.png", "b.png"]
    if kind == "DICOM":
        from tests.private_learning.records.test_dicom import write

        for name in ("a.dcm", "b.dcm"):
            write(folder / name)
        return ["a.dcm", "b.dcm"]
    nibabel: Any = pytest.importorskip("nibabel")
    for name in ("a.nii", "b.nii"):
        nibabel.save(nibabel.Nifti1Image(np.zeros((4, 4, 2), np.int16), np.eye(4)), folder / name)
    return ["a.nii", "b.nii"]


def test_columns_of_events_are_denied_as_well() -> None:
    events = Table.of({"Code": ["I10"], "day": [1.0], "id": ["a"]}, patient_column="id")
    records = Histories.with_events(table("postcode"), {"drugs": events})
    found = readable(records, QueryRules(denied_columns=frozenset({"postcode", "code"})))
    assert isinstance(found, Histories)
    assert set(found.columns) == {"age", "ill"}
    assert set(found.events["drugs"].columns) == {"day"}
    # Also after some patients were left out.
    assert set(found.take([0]).events["drugs"].columns) == {"day"}


def test_what_is_not_allowed_is_read_by_nothing() -> None:
    found = readable(table("postcode"), QueryRules(allowed_columns=frozenset({"AGE ", "ill"})))
    assert set(found.columns) == {"age", "ill"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["in memory", "lazy"])
def test_every_kind_of_table_hides_it(tmp_path: Path, kind: str) -> None:
    arrow: Any = pytest.importorskip("pyarrow")
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        arrow.table({"Postcode": ["1", "2"], "age": [1.0, 2.0], "id": ["a", "b"]}), tmp_path / "r.parquet"
    )
    records = load(tmp_path / "r.parquet", patient_column="id", lazy=kind == "lazy")
    kept = remaining(records, plain_policy(statistics={"denied_columns": ["postcode"]})).records
    assert isinstance(kept, Table)
    assert list(kept.columns) == ["age"]
    assert "Postcode" not in kept.columns
    assert len(kept.columns) == 1
    assert list(kept.take([1]).columns) == ["age"]
    with pytest.raises(KeyError):
        kept.columns["Postcode"]


def study(**parameters: Any) -> StudySettings:
    return settings(training={"task_parameters": {**TASK_PARAMETERS, **parameters}})


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"column.Rate": "40..180"}, "rate"),
        ({"label": "ILL"}, "ill"),
        ({"events.drugs": "code=atc; time=day; codes=A"}, "atc"),
        ({"events.drugs": "code=atc; time= day; codes=A"}, "Day"),
        ({"labels": "ill|dead"}, "dead"),
    ],
    ids=["an input", "the label", "a code of events", "a time of events", "one of several labels"],
)
def test_a_study_whose_task_names_a_denied_column_is_refused(parameters: dict[str, Any], name: str) -> None:
    chosen, policy = study(**parameters), plain_policy(statistics={"denied_columns": [name]})
    assert name.casefold() in {as_read(each) for each in trained_columns(chosen.training)}
    with pytest.raises(PolicyRefused, match="which the study's task reads") as caught:
        require_allowed(policy, "sepsis", "icu", chosen, roster_pinned=True)
    assert caught.value.code == "policy-columns"


def records(**renamed: str) -> Records:
    draw = np.random.default_rng(1)
    columns = {
        "age": draw.uniform(20, 90, 40),
        "rate": draw.uniform(50, 170, 40),
        "ill": draw.integers(2, size=40),
    }
    return Table.of(
        {renamed.get(name, name): values for name, values in columns.items()} | {"id": [f"p{i}" for i in range(40)]},
        patient_column="id",
    )


def test_neither_training_nor_evaluation_nor_questions_can_reach_it() -> None:
    """Also if no rule looked at the text of the study: the column is not there."""
    policy = plain_policy(statistics={"denied_columns": ["RATE"]})
    with pytest.raises(Exception, match="rate"):
        check_data(records(), policy, study())
    with pytest.raises(Exception, match="rate"):
        able(None, records(), policy, study(), None, "cpu", 60.0, "mercy", "1")
    assert "rate" not in AskedPatients.of(records(), policy).records.columns
