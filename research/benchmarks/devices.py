"""One private step on one device and on several: `python -m research.benchmarks.devices`.

Each figure is the median over rounds of the clock's time divided by that of one device in the same round, every process
with one torch thread. Devices are processor cores by default; `--devices cuda:0,cuda:1` measures GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import torch

from private_learning.gradients import PerRecordGradients, Slots
from private_learning.gradients.layers import cross_entropy
from private_learning.training.noise import SecureSource, add_noise
from research.benchmarks.private_step_models import tf_cnn
from research.benchmarks.simulation_work import small_cnn

RESULTS = Path(__file__).parent / "results" / "devices.json"
MODELS = {"small CNN": small_cnn, "TF CNN": tf_cnn}
BATCH, SHAPE, CLASSES = 600, (1, 28, 28), 10


def seconds(gradients: PerRecordGradients, x: torch.Tensor, y: torch.Tensor) -> float:
    source = SecureSource()
    begun = time.perf_counter()
    clipped = gradients.clipped_sum(x, y, clip_norm=1.0, slots=Slots.random(float(BATCH), source))
    add_noise(clipped, noise_multiplier=1.0, source=source)
    return time.perf_counter() - begun


def compare(name: str, devices: list[str], rounds: int) -> dict[str, object]:
    x, y = torch.randn(BATCH, *SHAPE), torch.randint(0, CLASSES, (BATCH,))
    counts = range(1, len(devices) + 1)
    gradients: dict[int, PerRecordGradients] = {}
    for count in counts:
        torch.manual_seed(0)
        model = MODELS[name]().to(devices[0])
        gradients[count] = PerRecordGradients(model, cross_entropy, further_devices=devices[1:count])
        seconds(gradients[count], x, y)
    timings = [{count: seconds(gradients[count], x, y) for count in counts} for _ in range(rounds)]
    return {
        str(count): {
            "milliseconds": 1e3 * statistics.median(row[count] for row in timings),
            "ratio": statistics.median(row[count] / row[1] for row in timings),
        }
        for count in counts
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", default="cpu,cpu")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    devices = options.devices.split(",")
    kind = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} cores"
    report: dict[str, object] = {"devices": devices, "machine": kind, "torch": torch.__version__, "batch": BATCH}
    for name in MODELS:
        report |= {"load_average": os.getloadavg(), name: compare(name, devices, options.rounds)}
        print(name, json.dumps(report[name], indent=1), flush=True)
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
