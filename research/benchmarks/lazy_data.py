"""Images and tables on disk, read when a step needs them: `python -m research.benchmarks.lazy_data`, and with
`--table`.

100,000 generated PNG of 64 × 64 grey pixels in two classes; one round of some steps of the built-in CNN, each way in a
process of its own: read on demand, all in memory, and read by PyTorch's DataLoader for plain SGD of the same model.
Every process has one torch thread. Memory is the most that was resident, of the process and its largest child, until
the round is done. Reading on demand and in memory must give the same bytes.

With `--table`: a million rows of 10 columns (9 numbers, one of words) and a patient column, Parquet in row groups of
100,000; one round of logistic regression on all columns, read on demand and in memory.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "lazy_data.json"
SIDE, CLASSES = 64, 2
TASK = {"height": SIDE, "width": SIDE, "classes": CLASSES}
WAYS = ("on demand", "in memory", "DataLoader")
OF_A_TABLE = Path(__file__).parent / "results" / "lazy_table.json"
TABLE_ROWS, GROUP_ROWS, NUMBERS, WARDS = 1_000_000, 100_000, 9, ("a", "b", "c", "d")
TABLE_TASK = {
    "label": "ill",
    **{f"column.x{place}": "-3..3" for place in range(NUMBERS)},
    "column.ward": "|".join(WARDS),
}
_PORTION = 1000
_MAX_BYTES = 2 << 30


@dataclass(frozen=True)
class Request:
    """One way to train on one folder."""

    folder: Path
    way: str
    records: int
    batch: int
    steps: int


def generate(folder: Path, records: int) -> None:
    """Images whose brightness follows their class; a seed for each portion."""
    for label in range(CLASSES):
        (folder / f"class{label}").mkdir(parents=True)
    with ProcessPoolExecutor() as workers:
        starts = range(0, records, _PORTION)
        list(workers.map(_generated, [folder] * len(starts), starts, [records] * len(starts)))


def _generated(folder: Path, start: int, records: int) -> None:
    from PIL import Image

    draw = np.random.default_rng(start)
    waves = np.sin(np.linspace(0, 6, SIDE))[:, None] * np.cos(np.linspace(0, 6, SIDE))
    for row in range(start, min(start + _PORTION, records)):
        label = row % CLASSES
        pixels = 110 + 40 * label * waves + 40 * draw.normal() * waves.T + draw.normal(0, 6, (SIDE, SIDE))
        image = Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))
        image.save(folder / f"class{label}" / f"{row:06d}.png", compress_level=1)


def generate_table(path: Path, rows: int, group: int) -> None:
    """A label that follows the first numbers; a seed for each row group."""
    import pyarrow
    from pyarrow import parquet

    writer: Any = None
    for start in range(0, rows, group):
        draw, count = np.random.default_rng(start), min(group, rows - start)
        numbers = draw.normal(size=(count, NUMBERS))
        columns: dict[str, Any] = {f"x{place}": numbers[:, place] for place in range(NUMBERS)}
        columns["ward"] = np.array(WARDS)[draw.integers(0, len(WARDS), count)]
        columns["ill"] = (numbers[:, :3].sum(1) + draw.normal(size=count) > 0).astype(np.int8)
        columns["patient"] = [f"{row:07d}" for row in range(start, start + count)]
        table = pyarrow.table(columns)
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=group)
    writer.close()


def private(request: Request) -> dict[str, Any]:
    """A round by the hospital's own functions."""
    import torch

    from private_learning.records import load
    from private_learning.tasks import dataset_of
    from private_learning.tasks import load as load_task
    from private_learning.training import LocalTraining, weights_of
    from private_learning.training.gradients import PrivateGradients
    from study_protocol.randomness.source import SeededRandomness

    step_seconds = _seconds_of(PrivateGradients)
    begun = time.perf_counter()
    name, parameters = _task_of(request)
    task = load_task(name, parameters)
    of_table = None if request.folder.is_dir() else "patient"
    records = load(request.folder, lazy=request.way == "on demand", patient_column=of_table)
    dataset = dataset_of(task, records)
    opened = time.perf_counter() - begun
    torch.manual_seed(1)
    training = LocalTraining(task, dataset, _study(request), SeededRandomness(1, allow_insecure=True))
    begun = time.perf_counter()
    update = training.update(weights_of(task.model()), None)
    took = time.perf_counter() - begun
    digest = hashlib.sha256(b"".join(array.tobytes() for _, array in sorted(update.items()))).hexdigest()
    return {"opened_seconds": opened, "round_seconds": took, "step_seconds": step_seconds, "update_sha256": digest}


def _task_of(request: Request) -> tuple[str, dict[str, Any]]:
    return ("cnn", dict(TASK)) if request.folder.is_dir() else ("logistic-regression", dict(TABLE_TASK))


def _study(request: Request) -> Any:
    from tests.harness import tiny

    name, parameters = _task_of(request)
    training = {"task": name, "task_parameters": parameters, "algorithm": "fedavg", "learning_rate": 0.05}
    return tiny.settings(
        "parallel",
        clients=1,
        rounds=request.steps,
        training=training | {"local_steps": request.steps},
        bayesian=False,
        noise_multiplier=1.0,
        sampling_rate=request.batch / request.records,
        expected_batch_size=float(request.batch),
    )


def _seconds_of(kind: Any) -> list[float]:
    """How long each of its steps takes, from now on."""
    step_seconds: list[float] = []
    compute = kind.at

    def timed(self: Any, step: int) -> Any:
        begun = time.perf_counter()
        gradient = compute(self, step)
        step_seconds.append(time.perf_counter() - begun)
        return gradient

    kind.at = timed
    return step_seconds


class Folder:
    """The same images as a plain data set of PyTorch."""

    def __init__(self, folder: Path) -> None:
        self.files = [(str(path), int(path.parent.name[-1])) for path in sorted(folder.glob("*/*.png"))]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        import torch
        from PIL import Image

        path, label = self.files[row]
        pixels = torch.from_numpy(np.asarray(Image.open(path), dtype=np.float32))
        return pixels[None] / 127.5 - 1, label


def plain(request: Request) -> dict[str, Any]:
    """SGD of the same model on batches of the same size, read by two workers of a DataLoader."""
    import torch
    from torch.utils.data import DataLoader, RandomSampler

    from private_learning.tasks import load as load_task

    begun = time.perf_counter()
    data: Any = Folder(request.folder)
    opened = time.perf_counter() - begun
    task = load_task("cnn", TASK)
    model = task.model()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    sampler = RandomSampler(data, num_samples=request.steps * request.batch)
    begun = time.perf_counter()
    step_seconds: list[float] = []
    last = begun
    for x, y in DataLoader(data, batch_size=request.batch, sampler=sampler, num_workers=2):
        optimiser.zero_grad()
        task.loss(model(x), y).mean().backward()
        optimiser.step()
        now = time.perf_counter()
        step_seconds.append(now - last)
        last = now
    return {"opened_seconds": opened, "round_seconds": time.perf_counter() - begun, "step_seconds": step_seconds}


def measured(request: Request) -> dict[str, Any]:
    """In this process, which has done nothing else."""
    import torch

    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    result = plain(request) if request.way == "DataLoader" else private(request)
    peak = sum(resource.getrusage(process).ru_maxrss for process in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    step_seconds = result.pop("step_seconds")
    # The first step confirms the method, and waits for its own records.
    return result | {
        "median_step_milliseconds": 1e3 * statistics.median(step_seconds[1:] or step_seconds),
        "peak_resident_mib": peak / 1024,
    }


def measured_in_process(request: Request) -> dict[str, Any]:
    """The same in a new process."""
    command = [
        sys.executable,
        "-m",
        "research.benchmarks.lazy_data",
        "--one",
        request.way,
        "--folder",
        str(request.folder),
    ]
    numbers = [f"--records={request.records}", f"--batch={request.batch}", f"--steps={request.steps}"]
    done = subprocess.run([*command, *numbers], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compared(
    folder: Path, records: int, batches: Sequence[int], steps: int, names: Sequence[str] = WAYS
) -> dict[str, Any]:
    """Every way with every size of batch, and whether bytes and memory are as they must be."""
    results: dict[str, Any] = {}
    for batch in batches:
        ways = {way: measured_in_process(Request(folder, way, records, batch, steps)) for way in names}
        equal = ways["on demand"]["update_sha256"] == ways["in memory"]["update_sha256"]
        print(batch, json.dumps(ways, indent=1), "same bytes" if equal else "OTHER BYTES", flush=True)
        if not equal:
            raise SystemExit("reading on demand does not give the bytes of records in memory")
        results[str(batch)] = ways | {"same_bytes": equal}
        if ways["on demand"]["peak_resident_mib"] * 2**20 > _MAX_BYTES:
            raise SystemExit("reading on demand takes more than 2 GiB")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", action="store_true", help="a table instead of images")
    parser.add_argument("--records", type=int, help="left out: 100,000 images, or 1,000,000 rows")
    parser.add_argument("--group-rows", type=int, default=GROUP_ROWS, help="of a table, in one row group")
    parser.add_argument("--batches", type=int, nargs="+", help="left out: 512 and 5000")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--one", choices=WAYS)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--folder", type=Path, help="with the images; left out: they are made, and removed afterwards")
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measured(Request(options.folder, options.one, options.records, options.batch, options.steps))))
        return
    with tempfile.TemporaryDirectory() as home:
        if options.table:
            _of_table(Path(home) / "table.parquet", options)
            return
        records, batches = options.records or 100_000, options.batches or [512, 5000]
        folder = options.folder or Path(home) / "images"
        begun = time.perf_counter()
        if not folder.exists():
            generate(folder, records)
        size = sum(path.stat().st_size for path in folder.glob("*/*.png"))
        report = {
            "records": records,
            "image": [SIDE, SIDE],
            "mib_on_disk": size / 2**20,
            "generated_seconds": time.perf_counter() - begun,
            "steps": options.steps,
            "machine": f"{os.cpu_count()} cores",
            "load_average": os.getloadavg(),
            "by_expected_batch_size": compared(folder, records, batches, options.steps),
        }
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


def _of_table(path: Path, options: argparse.Namespace) -> None:
    rows, batches = options.records or TABLE_ROWS, options.batches or [512, 5000]
    generate_table(path, rows, options.group_rows)
    report = {
        "rows": rows,
        "columns": NUMBERS + 1,
        "rows_of_a_group": options.group_rows,
        "mib_on_disk": path.stat().st_size / 2**20,
        "steps": options.steps,
        "machine": f"{os.cpu_count()} cores",
        "load_average": os.getloadavg(),
        "by_expected_batch_size": compared(path, rows, batches, options.steps, WAYS[:2]),
    }
    if options.group_rows == GROUP_ROWS:
        OF_A_TABLE.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
