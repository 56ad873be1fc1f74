"""No text that a class makes of itself shows a cell of a patient: a walk over all classes of the shipped packages."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import inspect
import io
import logging
import pkgutil
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from rich.pretty import pretty_repr

from client_sdk.study.events import RoundEvent
from private_learning.records import DataError, Examples, Histories, Table, load
from private_learning.tasks.task import TaskParameters
from study_protocol.cells import column_of
from tests.factories.hospitals import coordinator, hospital, plain_policy

PACKAGES = (
    "accounting",
    "client_sdk",
    "private_learning",
    "record_sources",
    "server",
    "simulation",
    "study_protocol",
    "synthesis",
    "wardround",
)
# A field can hold cells if its type says so, or its name.
_HOLDING_TYPE = re.compile(
    r"Array|Tensor|RingVector|Numbers\b|\bColumn\b|Any\b|\bobject\b|Callable|Future|\bbytes\b|bytearray|Iterat"
    r"|(tuple|list|Sequence|Collection|Iterable|set|frozenset)\[(str|float|bytes|list|tuple)|(dict|Mapping)\[",
    re.IGNORECASE,
)
_HOLDING_NAME = re.compile(r"patient|identifier|label|cell|\bword|^[xy]$|^rows?$", re.IGNORECASE)
_PLAIN = {"int", "float", "bool", "int | None", "float | None", "bool | None"}

# No record reaches these: module or class -> why.
NO_RECORDS = {
    "accounting": "numbers of plans, charges and limits. The individual sums are hidden by hand, see WRITTEN",
    "server": "what hospitals send: noised, masked or public",
    "study_protocol.study": "settings, statements and released answers, all public",
    "study_protocol.documents": "the certificate, which is public",
    "study_protocol.secure_sum": "masked words, ciphertexts and public keys, as they leave",
    "study_protocol.queries": "questions, and answers after noise",
    "study_protocol.versions": "settings",
    "study_protocol.wire": "what leaves",
    "client_sdk.api": "requests and answers of the coordinator. Bodies are hidden",
    "client_sdk.identity": "names, addresses and public keys",
    "client_sdk.secure_sum.store": "keys are hidden, the rest leaves",
    "client_sdk.guard.policy": "the site policy. Its exclusions are hidden",
    "client_sdk.guard.decision": "a question, terms, policy or roster in words, without answers",
    "client_sdk.guard.people": "people who decide here, and their accounts",
    "client_sdk.guard.seen_ledger": "the coordinator's ledger",
    "client_sdk.study.walk": "the coordinator's documents",
    "client_sdk.study.heads": "the coordinator's documents",
    "client_sdk.study.events": "limits and what of them is spent",
    "client_sdk.study.agreements.JoinAgreements": "decisions of people here. The ledger has no generated text",
    "client_sdk.study.network_needs": "addresses and ports",
    "client_sdk.study.joining.StudyProposal": "settings, and a check of them by the policy",
    "client_sdk.released": "a released model and its scores",
    "private_learning.gradients.losses": "parameters of a loss, from the settings",
    "private_learning.gradients.pixels": "parameters of a loss, from the settings",
    "private_learning.gradients.slots.Slots": "a source of random words",
    "private_learning.records.array_files._StoredRows": "the shape and type of an array",
    "private_learning.records.dicom._Description": "the form of a picture",
    "private_learning.records.formats": "options, endings and functions of a format",
    "private_learning.records.labelled": "names of label columns. Files, labels and patients are hidden",
    "private_learning.records.datasets._Items": "the shape of a data set. Its records are hidden",
    "private_learning.records.proposal.Proposal": "how texts are written, in counts",
    "private_learning.records.proposal.ColumnForms": "counts of forms",
    "record_sources.source_file": "what a hospital's file says of a source, without its password",
    "record_sources.snapshot": "names, counts and digests of a snapshot",
    "record_sources.sources.Contents": "names of tables, and sentences of counts",
    "record_sources.cohort.counts": "counts",
    "record_sources.sql.source": "texts of queries",
    "record_sources.omop.tables": "names of tables and columns",
    "record_sources.fhir.source": "paths and settings",
    "record_sources.fhir.view_source": "paths and views",
    "record_sources.fhir.view_definitions": "views",
    "record_sources.fhir.resources._EventKind": "names of elements",
    "private_learning.tasks.convolutions": "the layout of a network",
    "private_learning.tasks.curves": "the declaration of a column, from the settings",
    "private_learning.tasks.declared_columns": "the declaration of a column, from the settings",
    "private_learning.tasks.events": "the declaration of events, from the settings",
    "simulation.backends.base.UpdateLayout": "names and places of tensors",
    "simulation.baselines": "scores on public or the caller's own test records",
    "simulation.coordinator": "ledger events and sampled places of hospitals",
    "simulation.engine.RoundShown": "scores and ε",
    "simulation.results.report": "scores and ε",
    "simulation.audit.laws.LawResult": "p-values of a whole run",
    "simulation.audit.membership": "rates of an attack. Its patients are counted",
    "simulation.audit.page": "what a page of the audit shows: rates and figures",
    "synthesis": "answers after noise, and synthetic records that follow from them",
    "simulation.trial": "scores, and how settings are made",
    "simulation.records.Source": "names of hospitals and nested records",
    "wardround.cli": "options and statements",
    "wardround.demo.board": "scores and ε",
    "wardround.demo.hospitals": "processes",
    "wardround.demo.live": "addresses and processes",
    "wardround.demo.run": "scores",
    "wardround.demo.watch": "ε",
    "wardround.tracking": "released results, as an MLflow server gets them",
    "wardround.extras": "names of packages",
    "study_protocol.cells.counting.Declaration": "a function and a range of the settings",
}
# Texts that a class writes itself: class -> why it shows no cell.
WRITTEN = {
    "record_sources.fhir.resources": "the name of the class alone",
    "client_sdk.api.answered.Answered": "names of tables of a released answer",
    "client_sdk.guard.decision.Subject": "kind and study",
    "client_sdk.guard.people": "a name, an account and a role",
    "client_sdk.identity.Identity": "a folder and a public key",
    "client_sdk.study.hospital.Hospital": "a folder and a public key",
    "private_learning.records.proposal.ColumnForms": "counts of forms",
    "private_learning.records.records.Table": "counts of rows and columns, see test_records_say_their_size",
    "private_learning.records.records.Examples": "a count and a shape, see test_records_say_their_size",
    "private_learning.records.table_format.TableFormat": "the declaration",
    "private_learning.training.speed.SlowPath": "a reason and a factor of time",
    "simulation.local_work.ClientStopped": "a hospital, a round and a reason without values",
    "study_protocol.randomness.source.Purpose": "its name",
}
_TEXTS = ("__repr__", "__str__", "__format__", "__rich_repr__", "__rich__", "__rich_console__", "_repr_pretty_")
_TEXTS += ("_repr_html_", "_repr_mimebundle_", "_ipython_display_")
_CONTAINERS = (dict, list, tuple, set, frozenset, np.ndarray)


def classes() -> dict[str, type]:
    found = dict[str, type]()
    for root in PACKAGES:
        package = importlib.import_module(root)
        for module in pkgutil.walk_packages(package.__path__, root + "."):
            if module.name.endswith("__main__"):
                continue
            for value in vars(importlib.import_module(module.name)).values():
                if inspect.isclass(value) and value.__module__.split(".")[0] in PACKAGES:
                    found[f"{value.__module__}.{value.__qualname__}"] = value
    return found


def is_listed(name: str, reasons: dict[str, str]) -> bool:
    return any(name == listed or name.startswith(listed + ".") for listed in reasons)


def shown_fields(kind: type) -> Iterator[tuple[str, str]]:
    """The fields that a generated text shows, with their types."""
    if dataclasses.is_dataclass(kind):
        yield from ((f.name, str(f.type)) for f in dataclasses.fields(kind) if f.repr)
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        yield from ((name, str(kind.__annotations__.get(name))) for name in kind._fields)  # pyright: ignore
    elif hasattr(kind, "model_fields"):
        fields: dict[str, Any] = kind.model_fields  # pyright: ignore[reportAttributeAccessIssue]
        yield from ((name, str(field.annotation)) for name, field in fields.items() if field.repr)


def has_generated_text(kind: type) -> bool:
    if kind.__repr__ is object.__repr__:
        return False
    defining = next(base for base in kind.__mro__ if "__repr__" in vars(base))
    return not (defining.__module__.split(".")[0] in PACKAGES and inspect.getsource(defining).count("def __repr__"))


def leaks(kind: type) -> list[str]:
    """The fields of a class that can hold cells and are shown by its generated text."""
    # Parameters are the study's settings.
    if not has_generated_text(kind) or issubclass(kind, TaskParameters):
        return []
    return [
        name
        for name, annotation in shown_fields(kind)
        if annotation not in _PLAIN and (_HOLDING_TYPE.search(annotation) or _HOLDING_NAME.search(name))
    ]


def own_texts(kind: type) -> list[str]:
    source = [name for name in _TEXTS if name in vars(kind)]
    made = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")
    generated = made and "def __repr__" not in inspect.getsource(kind)
    hidden = vars(kind).get("__repr__") is object.__repr__
    return [name for name in source if not (name == "__repr__" and (generated or hidden))]


def is_container(kind: type) -> bool:
    """A subclass of dict or list is printed whole. The fields of a named tuple are looked at one by one."""
    is_plain = issubclass(kind, _CONTAINERS) and not hasattr(kind, "_fields")
    return is_plain and kind.__repr__ is not object.__repr__


def test_no_generated_text_shows_a_field_that_can_hold_cells() -> None:
    found = {name: leaks(kind) for name, kind in classes().items() if not is_listed(name, NO_RECORDS)}
    wrong = {name: fields for name, fields in found.items() if fields}
    assert not wrong, f"dataclass(repr=False), or say in NO_RECORDS why no record reaches it: {wrong}"


def test_every_text_that_a_class_writes_itself_is_listed() -> None:
    unlisted = {
        name: texts
        for name, kind in classes().items()
        if not is_listed(name, WRITTEN) and not is_listed(name, NO_RECORDS) and (texts := own_texts(kind))
    }
    assert not unlisted, f"say in WRITTEN why it shows no cell: {unlisted}"


def test_no_class_of_records_is_a_container_that_shows_what_it_holds() -> None:
    wrong = [name for name, kind in classes().items() if not is_listed(name, NO_RECORDS) and is_container(kind)]
    assert not wrong


def test_nothing_is_listed_that_is_not_there() -> None:
    known = classes()
    modules = {name.rpartition(".")[0] for name in known}
    for listed in {**NO_RECORDS, **WRITTEN}:
        assert listed in known or any(m == listed or m.startswith(listed + ".") for m in modules), listed


def test_a_new_class_that_leaks_is_found() -> None:
    @dataclasses.dataclass
    class Leaks:
        values: np.ndarray[Any, Any]

    class Listed(tuple[Any, ...]):
        __slots__ = ()

    @dataclasses.dataclass(repr=False)
    class Hides:
        values: np.ndarray[Any, Any]

    assert leaks(Leaks) == ["values"]
    assert is_container(Listed)
    assert leaks(Hides) == []


CANARY, WORD = 73198.4375, "kanarienvogel"


def texts_of(value: object) -> str:
    buffer = io.StringIO()
    Console(file=buffer, width=200).print(value)
    return "\n".join([repr(value), str(value), format(value), pretty_repr(value), buffer.getvalue()])


def is_clean(text: str) -> bool:
    return "73198" not in text and "73,198" not in text and WORD not in text


def test_records_say_their_size() -> None:
    table = Table.of({"age": [CANARY, 1.0], "ward": [WORD, "b"], "who": [WORD, "q"]}, patient_column="who")
    events = Histories.with_events(table, {"labs": table})
    pictures = Examples.of(np.full((2, 3), CANARY), [WORD, WORD], [WORD, "q"])
    column = column_of([CANARY, WORD], name="age")
    for held in (table, events, pictures, column, [table], {"a": column}, (pictures, events)):
        assert is_clean(texts_of(held))
    assert repr(table) == "Table(2 rows, 2 columns)"
    assert repr(pictures) == "Examples(2 of shape (3,))"


def test_a_whole_participation_shows_no_cell(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every living object of the shipped packages after each round, and every line of the log."""
    caplog.set_level(logging.DEBUG)
    seen = set[str]()

    def look(_: RoundEvent) -> None:
        for thing in gc.get_objects():
            kind = type(thing)
            if str(kind.__module__).split(".")[0] in PACKAGES and not inspect.isclass(thing):
                seen.add(kind.__qualname__)
                assert is_clean(repr(thing)), kind
                assert is_clean(str(thing)), kind

    ages, who = np.full(20, CANARY), [f"{WORD}-{number}" for number in range(20)]
    table = Table.of({"age": ages, "rate": ages, "ill": [0.0, 1.0] * 10, "patient": who}, patient_column="patient")
    here = hospital(coordinator(), tmp_path)
    here.join("sepsis", "logistic-regression", table, policy=plain_policy(), on_round=look)
    assert {"Table", "Column", "TaskDataset", "LocalTraining"} <= seen
    assert is_clean(caplog.text)


FILES = {
    "a text for a number": "who,age,y\nkanarienvogel,73198.4375,1\nb,kanarienvogel,0\n",
    "a line too long": "who,age,y\nkanarienvogel,73198.4375,1,73198,7\n",
    "a line too short": "who,age,y\nkanarienvogel\n",
    "an open quotation mark": 'who,age,y\n"kanarienvogel,73198.4375,1\n',
    "no patient": "who,age,y\n,73198.4375,kanarienvogel\n",
    "a null byte": "who,age,y\nkanarienvogel\0,73198.4375,1\n",
    "a wrong byte": "who,age,y\nkanarienvogel\udcff,73198.4375,1\n",
    "a long identifier": "who,age,y\n7.3198E+18,73198.4375,kanarienvogel\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_read_that_fails_shows_no_cell(name: str, tmp_path: Path) -> None:
    path = tmp_path / "records.csv"
    path.write_bytes(FILES[name].encode("utf-8", "surrogateescape"))
    try:
        table = load(path, patient_column="who")
        assert isinstance(table, Table)
        for column in table.columns:
            table.numbers(column)
            table.categories(column, ["1"])
    except DataError as error:
        whole = "".join(traceback.format_exception(error))
        # Lines of this file are in the traceback.
        assert is_clean(re.sub(r'File ".*test_no_cell_shown.py".*\n.*\n', "", whole))
    else:
        assert name == "none fails"


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".npz", ".npy", ".csv.gz", ".dcm", ".nii", ".tar", ".png"])
def test_a_damaged_file_shows_nothing_of_itself(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"records{suffix}"
    path.write_bytes(b"kanarienvogel 73198.4375 " * 40)
    with pytest.raises(DataError) as caught:
        load(path, patient_column=None)
    assert is_clean("".join(traceback.format_exception(caught.value)))
