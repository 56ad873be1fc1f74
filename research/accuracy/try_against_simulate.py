"""The number of `wardround try` beside that of `simulate` with hand-made columns, on five public sets as CSV.

Both hold a fifth of the patients out and deal the others out to four hospitals at ε 2. By hand: the columns and public
ranges of clinical practice or of the set's description, below, with the settings of `plan --suggest`.

    python -m research.accuracy.try_against_simulate [--seeds 3] [NAME …]
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from client_sdk.study.guessed_columns import guess_columns
from client_sdk.study.guessed_label import giveaways, guess_task
from private_learning.records import Table, load
from simulation.backends.choice import quickest
from simulation.records import Dealer, HowSplit, Source
from simulation.trial import POOLED, STUDY, Trial
from wardround.cli.researcher.trial_settings import TrialSettings

HOSPITALS, EPSILON, TEST_SHARE, MOST_ROWS = 4, 2.0, 0.2, 3000
_PARTS = "radius texture perimeter area smoothness compactness concavity concave_points symmetry fractal_dimension"
_LIMITS = ("0..30", "0..40", "0..200", "0..2500", "0..0.2", "0..0.4", "0..0.5", "0..0.25", "0..0.4", "0..0.1")
_ERRORS = ("0..3", "0..5", "0..20", "0..500", "0..0.03", "0..0.15", "0..0.4", "0..0.05", "0..0.08", "0..0.03")


@dataclass(frozen=True)
class HandMadeCase:
    """A set: its files below the data folder, its header or None (its own), label and columns by hand."""

    files: tuple[str, ...]
    header: str | None
    label: str
    columns: dict[str, str]


CASES = {
    "heart disease": HandMadeCase(
        tuple(
            f"heart_disease_4_hospitals/processed.{name}.data"
            for name in ("cleveland", "hungarian", "switzerland", "va")
        ),
        "age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal disease",
        "disease",
        {
            "age": "20..90",
            "sex": "0|1",
            "cp": "1|2|3|4",
            "trestbps": "80..200; missing=130",
            "chol": "100..500; missing=230; missing-values=0",
            "fbs": "0|1; missing",
            "restecg": "0|1|2; missing",
            "thalach": "60..210; missing=140",
            "exang": "0|1; missing",
            "oldpeak": "0..5; missing=1",
            "slope": "1|2|3; missing",
            "ca": "0..3; missing=0",
            "thal": "3|6|7; missing",
        },
    ),
    "breast cancer": HandMadeCase(
        ("breast_cancer_wdbc/wdbc.data",),
        f"id diagnosis {' '.join(f'{part}_{kind}' for kind in ('mean', 'se', 'worst') for part in _PARTS.split())}",
        "diagnosis",
        {
            f"{part}_{kind}": limits
            for kind, each in (("mean", _LIMITS), ("se", _ERRORS), ("worst", _LIMITS))
            for part, limits in zip(_PARTS.split(), each, strict=True)
        },
    ),
    "adult": HandMadeCase(
        ("adult/adult.data",),
        "age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain "
        "capital-loss hours-per-week native-country income",
        "income",
        {
            "age": "17..90",
            "education-num": "1..16",
            "marital-status": "Married-civ-spouse|Never-married|Divorced|Separated|Widowed|Married-spouse-absent"
            "|Married-AF-spouse",
            "sex": "Male|Female",
            "capital-gain": "0..15000",
            "capital-loss": "0..3000",
            "hours-per-week": "10..80",
        },
    ),
    "abalone": HandMadeCase(
        ("abalone/abalone.data",),
        "sex length diameter height whole_weight shucked_weight viscera_weight shell_weight rings",
        "sex",
        {
            "length": "0.1..0.8",
            "diameter": "0.1..0.6",
            "height": "0..0.25",
            "whole_weight": "0..2.5",
            "shucked_weight": "0..1.2",
            "viscera_weight": "0..0.6",
            "shell_weight": "0..0.8",
            "rings": "3..20",
        },
    ),
    "intensive care": HandMadeCase(
        ("eicu_demo/apacheapsvar.csv.gz",),
        None,
        "intubated",
        {
            "vent": "0|1",
            "eyes": "1..4; missing=4; missing-values=-1",
            "motor": "1..6; missing=6; missing-values=-1",
            "verbal": "1..5; missing=5; missing-values=-1",
            "temperature": "33..40; missing=37; missing-values=-1",
            "respiratoryrate": "4..60; missing=20; missing-values=-1",
            "heartrate": "30..200; missing=90; missing-values=-1",
            "meanbp": "30..200; missing=80; missing-values=-1",
            "fio2": "21..100; missing=40; missing-values=-1",
            "ph": "7..7.7; missing=7.4; missing-values=-1",
            "creatinine": "0..10; missing=1; missing-values=-1",
        },
    ),
}


def written(case: HandMadeCase, data: Path, path: Path) -> Table:
    """Write the set as one CSV and read it as a hospital would."""
    rows = [row for name in case.files for row in _rows(data / name)]
    header, rows = (rows[0], rows[1:]) if case.header is None else (case.header.split(), rows)
    if case.label == "disease":
        rows = [[*row[:-1], "yes" if float(row[-1]) > 0 else "no"] for row in rows]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows[:: max(1, len(rows) // MOST_ROWS)]])
    table = load(path)
    assert isinstance(table, Table)
    return table


def _rows(path: Path) -> Iterator[list[str]]:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    yield from (row for row in csv.reader(io.StringIO(text), skipinitialspace=True) if row)


def measured(table: Table, label: str, columns: dict[str, str] | None, seeds: int) -> Trial:
    """Run both studies of a trial with columns by hand, or guessed ones where they are None."""
    task = guess_task(table, [label])
    guessed = guess_columns(table.take(task.rows), task.targets)
    leaks = giveaways(guessed.lines, guessed.table, task)
    lines = {name: text for name, text in guessed.lines.items() if name not in leaks} if columns is None else columns
    records = guessed.table if columns is None else table.take(task.rows)
    of_size = TrialSettings.of(task, replace(guessed, lines=lines), HOSPITALS, EPSILON, len(records), 1).of_size
    dealer = Dealer(Source((records,), None, None), HowSplit("iid"), HOSPITALS, TEST_SHARE)
    trial = Trial(dealer, cache(of_size), quickest)
    for seed in range(seeds):
        trial.run(seed)
    return trial


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line of a table for each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}. All where none is named")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args(arguments)
    data, folder = Path(os.environ["WARDROUND_DATA"]), Path(os.environ.get("TMPDIR", "/tmp"))
    print("| set | `try` | by hand | difference, points | without privacy | processor seconds of `try` |", flush=True)
    print("|---|---|---|---|---|---|")
    for name in options.names or CASES:
        case = CASES[name]
        table = written(case, data, folder / f"{name.replace(' ', '-')}.csv")
        begun = time.process_time()
        trials = [measured(table, case.label, None, options.seeds)]
        seconds = time.process_time() - begun
        trials.append(measured(table, case.label, case.columns, options.seeds))
        accuracies: list[float] = []
        for trial in trials:
            assert trial.dealt_out is not None
            spread = trial.dealt_out.spread(STUDY, "accuracy")
            assert spread is not None
            accuracies.append(spread.mean)
        assert trials[0].dealt_out is not None
        pooled = trials[0].dealt_out.spread(POOLED, "accuracy")
        assert pooled is not None
        points = 100 * (accuracies[0] - accuracies[1])
        print(
            f"| {name} | {accuracies[0]:.3f} | {accuracies[1]:.3f} | {points:+.1f} "
            f"| {pooled.mean:.3f} | {seconds:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
