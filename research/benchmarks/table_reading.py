"""Tables from files to tensors: `python -m research.benchmarks.table_reading --against FOLDER`.

FOLDER holds another version's sources. A CSV has a million rows of 9 columns of numbers and words and a label. A
Parquet file has ten million rows of 4 columns and a label in row groups of 100,000, read on demand and whole. Each
reading is a process of its own. Versions alternate, and medians of processor seconds and of the most memory are kept.
The digests of both files are timed for this version alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "table_reading.json"
ROOT = Path(__file__).parents[2]
CSV_ROWS, PARQUET_ROWS, GROUP_ROWS = 1_000_000, 10_000_000, 100_000
WARDS = ("icu", "er", "0744", "surgery")
PARAMETERS = {
    "csv": {
        "label": "died",
        "column.age": "18..95",
        "column.temp": "34..42; missing=37; missing-values=99.9",
        **{f"column.lab{place}": "-3..3" for place in range(4)},
        "column.smoker": "True|False",
        "column.ward": "|".join(WARDS),
        "column.count": "0..50; missing=20; missing-values=-1",
    },
    "parquet": {
        "label": "died",
        "column.age": "18..95",
        "column.lab": "-3..3",
        "column.temp": "34..42; missing=37; missing-values=99.9",
        "column.ward": "|".join(WARDS),
    },
}


def generate(folder: Path, csv_rows: int, parquet_rows: int) -> None:
    """Both files."""
    import pandas as pd
    import pyarrow
    import pyarrow.parquet as parquet

    draw = np.random.default_rng(5)
    pd.DataFrame(
        {
            "who": np.arange(csv_rows),
            "age": draw.integers(18, 95, csv_rows),
            "temp": np.where(draw.random(csv_rows) < 0.1, 99.9, draw.normal(37, 1, csv_rows).round(1)),
            **{f"lab{place}": draw.normal(0, 1, csv_rows).round(6) for place in range(4)},
            "smoker": draw.random(csv_rows) < 0.3,
            "ward": np.array(WARDS)[draw.integers(0, len(WARDS), csv_rows)],
            "count": draw.integers(-1, 50, csv_rows),
            "died": draw.integers(0, 2, csv_rows),
        }
    ).to_csv(folder / "a.csv", index=False, float_format="%.6f")
    writer: Any = None
    for start in range(0, parquet_rows, GROUP_ROWS):
        rows = min(GROUP_ROWS, parquet_rows - start)
        table = pyarrow.table(
            {
                "age": draw.integers(18, 95, rows),
                "lab": draw.normal(0, 1, rows),
                "temp": draw.normal(37, 1, rows).round(1).astype(np.float32),
                "ward": pyarrow.array(np.array(WARDS)[draw.integers(0, len(WARDS), rows)]).dictionary_encode(),
                "died": draw.integers(0, 2, rows),
            }
        )
        writer = parquet.ParquetWriter(folder / "a.parquet", table.schema) if writer is None else writer
        writer.write_table(table)
    writer.close()


def read(path: Path, options_name: str) -> dict[str, float]:
    """In this process: seconds of the processor, GiB of memory, and the sum of all inputs."""
    from private_learning.records import load
    from private_learning.tasks import dataset_of
    from private_learning.tasks import load as load_task
    from private_learning.tasks.inputs import parts

    kind = path.suffix.removeprefix(".")
    if options_name == "digest":
        return _digested(path)
    task = load_task("logistic-regression", PARAMETERS[kind])
    start = time.process_time()
    options: dict[str, Any] = {"patient_column": "who"} if kind == "csv" else {"lazy": options_name == "on demand"}
    dataset = dataset_of(task, load(path, **options))
    total = sum(float(part.double().sum()) for part in parts(dataset.inputs))
    seconds = time.process_time() - start
    return {
        "seconds": seconds,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "sum": total + float(dataset.targets.sum()),
    }


def _digested(path: Path) -> dict[str, float]:
    from private_learning.records import load

    table: Any = load(path, lazy=True if path.suffix == ".parquet" else None)
    start = time.process_time()
    table.digest()
    return {
        "seconds": time.process_time() - start,
        "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "sum": float(len(table)),
    }


def _in_process(source: Path, path: Path, options_name: str) -> dict[str, float]:
    # The other version's sources, and this file.
    code = f"import runpy, sys; sys.argv[1:] = ['--read', {str(path)!r}, {options_name!r}]; " + (
        f"runpy.run_path({str(Path(__file__).resolve())!r}, run_name='__main__')"
    )
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=source, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="folder of another version's sources")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--csv-rows", type=int, default=CSV_ROWS)
    parser.add_argument("--parquet-rows", type=int, default=PARQUET_ROWS)
    parser.add_argument("--read", nargs=2, metavar=("FILE", "HOW"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps(read(Path(options.read[0]), options.read[1])))
        return
    versions = {"this": ROOT} | ({"other": options.against.resolve()} if options.against else {})
    cases = {"csv": ("a.csv", ""), "parquet, on demand": ("a.parquet", "on demand"), "parquet": ("a.parquet", "whole")}
    cases |= {"digest of the csv": ("a.csv", "digest"), "digest of the parquet": ("a.parquet", "digest")}
    timings: dict[str, dict[str, list[dict[str, float]]]] = {case: {name: [] for name in versions} for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), options.csv_rows, options.parquet_rows)
        for _ in range(options.repeats):
            for case, (file, reading_options) in cases.items():
                for name, source in versions.items():
                    if reading_options == "digest" and name != "this":
                        continue
                    timings[case][name].append(_in_process(source, Path(folder) / file, reading_options))
    medians = {
        case: {
            name: {key: statistics.median(run[key] for run in runs) for key in ("seconds", "gib", "sum")}
            for name, runs in each.items()
            if runs
        }
        for case, each in timings.items()
    }
    rows = {"csv_rows": options.csv_rows, "parquet_rows": options.parquet_rows, "repeats": options.repeats}
    RESULTS.write_text(json.dumps({**rows, "medians": medians}, indent=2) + "\n")
    print(json.dumps(medians, indent=2))


if __name__ == "__main__":
    main()
