"""Data sets for `research.accuracy.defaults`: tables as the task logistic-regression reads them, dealt to hospitals.

A case's `family` names its records: cases of one family are left out together. Each table is encoded twice: by ranges
alone, and by typical ranges, logarithms and frequencies. Those are the table's own, rounded. They stand in for what is
publicly known of such columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import numpy as np

from private_learning.records import Table
from private_learning.tasks.columns import encode_columns, read_columns
from private_learning.tasks.declared_columns import Declared
from private_learning.tasks.typical import fitted_column, known_values
from research.accuracy import defaults_tables as tables
from research.accuracy.defaults_tables import Floats, Labels
from wardround.demo.scenarios import BREAST_CANCER, HEART_DISEASE, breast_cancer
from wardround.demo.scenarios import heart_disease as heart_disease_scenario

HELD_OUT = 0.2
TYPICAL = ", typical"


@dataclass(frozen=True)
class SiteSplit:
    """One dealing. inputs: encoded columns and a last column of ones; site: whose record each training record is."""

    inputs: Floats
    labels: Labels
    site: Labels
    test_inputs: Floats
    test_labels: Labels


@dataclass(frozen=True)
class TableCase:
    """columns: of the table, before they are encoded; classes: values of the label; split: by its seed.

    declared  the columns as they are encoded
    """

    name: str
    family: str
    about: str
    columns: int
    classes: int
    split: Callable[[int], SiteSplit]
    declared: Callable[[], Sequence[Declared]] = tuple


def declared_as(described: Mapping[str, str], frame: Mapping[str, Any], typical: bool) -> tuple[Declared, ...]:
    if not typical:
        return read_columns({f"column.{name}": text for name, text in described.items()})
    texts = dict(described)
    for name, text in described.items():
        # Numbers that are only 0 and 1 are categories, which have frequencies.
        if text.split(";")[0] == "0..1" and set(np.unique(np.asarray(frame[name], np.float64)).tolist()) <= {0.0, 1.0}:
            texts[name] = "0|1; missing"
    columns = read_columns({f"column.{name}": text for name, text in texts.items()})
    return tuple(fitted_column(column, known_values(column, frame[column.name])) or column for column in columns)


def _encoded(frame: Mapping[str, Any], columns: Sequence[Declared]) -> Floats:
    inputs = cast("Floats", encode_columns(columns, {column.name: frame[column.name] for column in columns}))
    return np.column_stack([inputs, np.ones(len(inputs))])


def deal(inputs: Floats, labels: Labels, seed: int, hospitals: int, records: int | None) -> SiteSplit:
    """At random: a test set, and hospitals of equal size; records: of one hospital, None: all there are."""
    order = np.random.default_rng([seed, 7]).permutation(len(labels))
    held_out = max(round(HELD_OUT * len(labels)), 1)
    each = records or (len(labels) - held_out) // hospitals
    # A large test set costs time and shows nothing more.
    test, train = order[: min(held_out, 8_000)], order[held_out : held_out + hospitals * each]
    site = np.arange(len(train)) % hospitals
    return SiteSplit(inputs[train], labels[train], site, inputs[test], labels[test])


@dataclass(frozen=True)
class _Encoding:
    """Makes cases. typical: encoded by typical ranges, logarithms and frequencies."""

    typical: bool

    def random(
        self,
        name: str,
        about: str,
        described: Mapping[str, str],
        load: Callable[[], tuple[Mapping[str, Any], Labels]],
        *,
        hospitals: int,
        records: int | None = None,
        classes: int = 2,
        family: str | None = None,
    ) -> TableCase:
        @cache
        def encoded() -> tuple[Floats, Labels, tuple[Declared, ...]]:
            frame, labels = load()
            columns = declared_as(described, frame, self.typical)
            return _encoded(frame, columns), labels, columns

        def split(seed: int) -> SiteSplit:
            inputs, labels, _ = encoded()
            return deal(inputs, labels, seed, hospitals, records)

        return self._case(name, family or name, about, len(described), classes, split, lambda: encoded()[2])

    def sites(
        self,
        name: str,
        about: str,
        described: Mapping[str, str],
        load: Callable[[], tuple[Mapping[str, Any], Labels, Labels]],
        *,
        family: str,
    ) -> TableCase:
        """The site is the split; a fifth of each site's patients is the test set."""

        @cache
        def encoded() -> tuple[Floats, Labels, Labels, tuple[Declared, ...]]:
            frame, labels, site = load()
            columns = declared_as(described, frame, self.typical)
            return _encoded(frame, columns), labels, site, columns

        def split(seed: int) -> SiteSplit:
            inputs, labels, site, _ = encoded()
            order = np.random.default_rng([seed, 7]).permutation(len(labels))
            held_out, remaining = list[int](), list[int]()
            for number in np.unique(site):
                site_rows = [int(row) for row in order if site[row] == number]
                held_out += site_rows[: len(site_rows) // 5]
                remaining += site_rows[len(site_rows) // 5 :]
            return SiteSplit(inputs[remaining], labels[remaining], site[remaining], inputs[held_out], labels[held_out])

        return self._case(name, family, about, len(described), 2, split, lambda: encoded()[3])

    def scenario(self, name: str, about: str, described: Mapping[str, str], make: Callable[[int], Any]) -> TableCase:
        @cache
        def columns() -> tuple[Declared, ...]:
            scenario = make(0)
            parts = [cast("Table", records) for records in (*scenario.hospitals.values(), scenario.evaluation)]
            frame = {column: np.concatenate([part.numbers(column) for part in parts]) for column in described}
            return declared_as(described, frame, self.typical)

        def split(seed: int) -> SiteSplit:
            scenario = make(seed)
            label = scenario.task_parameters["label"]
            hospitals = [cast("Table", records) for records in scenario.hospitals.values()]
            site = np.concatenate([np.full(len(table), number) for number, table in enumerate(hospitals)])
            inputs = np.concatenate([_encoded(table.columns, columns()) for table in hospitals])
            labels = np.concatenate([table.numbers(label) for table in hospitals]).astype(np.int64)
            test = cast("Table", scenario.evaluation)
            test_labels = test.numbers(label).astype(np.int64)
            return SiteSplit(inputs, labels, site, _encoded(test.columns, columns()), test_labels)

        return self._case(name, name, about, len(described), 2, split, columns)

    def _case(self, name: str, *fields: Any) -> TableCase:
        return TableCase(name + TYPICAL * self.typical, *fields)


def _cases(typical: bool) -> Iterator[TableCase]:
    encoding = _Encoding(typical)
    yield encoding.scenario("heart disease", "738 patients, four real hospitals", HEART_DISEASE, heart_disease_scenario)
    yield encoding.scenario("breast cancer", "four hospitals by size of tumour", BREAST_CANCER, breast_cancer)
    yield encoding.random(
        "breast cancer, 30", "3 sites of 151", tables.CELLS, tables.cells, hospitals=3, family="breast cancer"
    )
    for name, rings, hospitals, records in (
        ("abalone", 10, 8, 400),
        ("abalone, many", 10, 60, 50),
        ("abalone, old", 12, 4, 250),
    ):
        load = tables.of_abalone(rings)
        about = f"{hospitals} sites of {records}"
        yield encoding.random(name, about, tables.ABALONE, load, hospitals=hospitals, records=records, family="abalone")
    for name, hospitals, records in (("adult, small", 4, 250), ("adult, many", 40, 50), ("adult", 10, 1000)):
        about = f"{hospitals} sites of {records}"
        yield encoding.random(
            name, about, tables.ADULT, tables.adult, hospitals=hospitals, records=records, family="adult"
        )
    for name, described, outcome, hospitals, records in (
        ("diabetes-130", tables.STAYS, lambda frame: frame["readmitted"] != "NO", 6, 500),
        ("diabetes-130, counts", tables.COUNTS, lambda frame: frame["readmitted"] != "NO", 4, 300),
        ("diabetes-130, long stay", tables.TREATMENT, lambda frame: frame["time_in_hospital"] >= 5, 4, 500),
    ):
        load, about = tables.of_stays(described, outcome), f"{hospitals} hospitals of {records}"
        yield encoding.random(name, about, described, load, hospitals=hospitals, records=records, family="diabetes-130")
    for name, described, outcome in (
        ("eICU, death", tables.INTENSIVE, lambda frame: frame["hospitaldischargestatus"] == "Expired"),
        ("eICU, treated", tables.INTENSIVE, lambda frame: frame["activetx"] == 1),
        ("eICU, laboratory", tables.LABORATORY, lambda frame: frame["vent"] == 1),
    ):
        yield encoding.sites(name, "four regions", described, tables.of_intensive(described, outcome), family="eICU")
    digits, wine, iris = (
        (name, described, tables.of_bundle(name, described))
        for name, described in (("digits", tables.DIGITS), ("wine", tables.WINE), ("iris", tables.IRIS))
    )
    yield encoding.random(digits[0], "5 sites of 287", *digits[1:], hospitals=5, records=287, classes=10)
    progression = tables.of_bundle("diabetes", tables.PROGRESSION)
    yield encoding.random("progression", "4 clinics of 88", tables.PROGRESSION, progression, hospitals=4)
    yield encoding.random(wine[0], "4 sites of 35", *wine[1:], hospitals=4, classes=3)
    yield encoding.random(iris[0], "4 sites of 30", *iris[1:], hospitals=4, classes=3)
    yield encoding.random("pneumonia", "4 sites of 500", tables.SQUARES, tables.pneumonia, hospitals=4, records=500)
    yield encoding.random(
        "mnist", "8 sites of 800", tables.SQUARES, tables.written_digits, hospitals=8, records=800, classes=10
    )
    for name, differences in (("tests, levels", False), ("tests, differences", True)):
        load = tables.of_tests(differences)
        yield encoding.random(name, "3 hospitals of 307, made up", tables.TESTS, load, hospitals=3, family="tests")


CASES = {case.name: case for typical in (False, True) for case in _cases(typical)}
