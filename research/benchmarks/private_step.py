"""One private step beside plain SGD and its peers: `python -m research.benchmarks.private_step`.

Everything runs in turn in one process, round after round; each figure is the median over rounds of the time divided by
plain SGD's in the same round. Times are processor seconds of all threads together, which a busy machine inflates far
less than the clock's (the clock's ratios are in the JSON too). One torch thread; long noise has another where
there is a core for it. Two allocators: glibc keeping its memory ("tuned") and glibc as it comes, where gigabytes a step
mean page faults.

Memory is the peak of three steps in a process of their own, above what it held before them and after a step on two
records (loaded code is not counted): once as glibc comes, and once with every larger block mapped and unmapped by
itself, so that the peak is what is in use and not what the heap has in holes.

Max pooling takes most of plain SGD's time on the CNNs. "ours" pools by comparison; plain SGD does not, and stands once
more with that pooling for comparison.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from private_learning.gradients import ClippedSum, PerRecordGradients
from private_learning.gradients.pooling import max_pools, pooled_by_comparison
from private_learning.training.noise import GridNoise, SecureSource, add_noise
from private_learning.training.noise_ahead import NoiseAhead
from research.benchmarks.load.meter import peak_mib
from research.benchmarks.private_step_models import WORKLOADS

RESULTS = Path(__file__).parent / "results" / "private_step.json"
TUNED = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
MAPPED = {"MALLOC_MMAP_THRESHOLD_": "65536"}
ALLOCATORS: dict[str, dict[str, str]] = {"tuned": TUNED, "default": {}}
ACCOUNTING_SAMPLE = 256  # further records whose norms the log-moments ask for
CLIP_NORM, RATE = 1.0, 1e-6
STEPS = 1 << 20  # of a round: noise of short vectors is drawn for several at once
Step = Callable[[], object]
Loss = Callable[[Tensor, Tensor], Tensor]


def plain(model: nn.Module, losses: Loss, x: Tensor, y: Tensor) -> Step:
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        optimiser.zero_grad()
        losses(model(x), y).mean().backward()
        optimiser.step()

    return step


def descend(model: nn.Module, gradients: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.sub_(gradients[name], alpha=RATE)


def plain_pooled(model: nn.Module, losses: Loss, x: Tensor, y: Tensor) -> Step:
    step, pools = plain(model, losses, x, y), max_pools(model)

    def pooled() -> None:
        with pooled_by_comparison(pools):
            step()

    return pooled


def ours(model: nn.Module, losses: Loss, x: Tensor, y: Tensor, *, noise: bool, accounting_sample: int = 0) -> Step:
    gradients, source = PerRecordGradients(model, losses), SecureSource()
    grid = GridNoise.calibrated(CLIP_NORM, sum(p.numel() for p in model.parameters()), noise_multiplier=1.0)
    # As in a study: calibrated once, short vectors drawn for several steps.
    prepared_noise = NoiseAhead(grid.law, grid.coordinates, STEPS)
    more = [torch.cat([value] * (1 + accounting_sample // len(x)))[:accounting_sample] for value in (x, y)]

    def step() -> None:
        drawing = prepared_noise.of_step(source) if noise else None
        clipped = gradients.clipped_sum(x, y, clip_norm=CLIP_NORM)
        if accounting_sample:
            gradients.norms(*more)
        done = clipped if drawing is None else grid.completed(clipped, drawing)
        descend(model, done.gradients)

    return step


def norms(model: nn.Module, losses: Loss, x: Tensor, y: Tensor) -> Step:
    gradients = PerRecordGradients(model, losses)
    return lambda: gradients.norms(x, y)


def noise_alone(model: nn.Module, losses: Loss, x: Tensor, y: Tensor) -> Step:
    """Plain SGD's gradient with noise: what any private step costs at least."""
    source, parameters = SecureSource(), dict(model.named_parameters())

    def step() -> None:
        gradients = torch.autograd.grad(losses(model(x), y).mean(), list(parameters.values()))
        summed = ClippedSum(dict(zip(parameters, gradients, strict=True)), torch.zeros(0), CLIP_NORM)
        descend(model, add_noise(summed, noise_multiplier=1.0, source=source).gradients)

    return step


def vmap(model: nn.Module, losses: Loss, x: Tensor, y: Tensor) -> Step:
    """Per-sample gradients by torch.func, clipped and summed."""

    def loss_of_one(parameters: dict[str, Tensor], a: Tensor, b: Tensor) -> Tensor:
        return losses(torch.func.functional_call(model, parameters, (a[None],)), b[None])[0]

    each = torch.func.vmap(torch.func.grad(loss_of_one), in_dims=(None, 0, 0))

    def step() -> None:
        gradients = each({name: p.detach() for name, p in model.named_parameters()}, x, y)
        squares = torch.stack([value.flatten(1).square().sum(1) for value in gradients.values()]).sum(0)
        factors = (CLIP_NORM / squares.sqrt()).clamp(max=1.0)
        descend(model, {name: torch.tensordot(factors, value, 1) for name, value in gradients.items()})

    return step


class Mean(nn.Module):
    """A loss as Opacus takes it: `reduction` says whether it is averaged over the batch."""

    def __init__(self, losses: Loss) -> None:
        super().__init__()
        self.losses, self.reduction = losses, "mean"

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = self.losses(outputs, targets)
        return losses.mean() if self.reduction == "mean" else losses


def opacus(model: nn.Module, losses: Loss, x: Tensor, y: Tensor, *, ghost: bool, noise: bool = False) -> Step:
    import opacus
    from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    assert opacus.__version__
    plan = {
        "noise_multiplier": 1.0 if noise else 0.0,
        "max_grad_norm": CLIP_NORM,
        "expected_batch_size": len(x),
        "loss_reduction": "mean",
    }
    inner = torch.optim.SGD(model.parameters(), lr=RATE)
    if ghost:
        wrapped: nn.Module = GradSampleModuleFastGradientClipping(
            model, max_grad_norm=CLIP_NORM, use_ghost_clipping=True, loss_reduction="mean"
        )
        optimiser: torch.optim.Optimizer = DPOptimizerFastGradientClipping(inner, **plan)
        criterion = DPLossFastGradientClipping(wrapped, optimiser, Mean(losses))
    else:
        wrapped = GradSampleModule(model, loss_reduction="mean")
        optimiser, criterion = DPOptimizer(inner, **plan), Mean(losses)

    def step() -> None:
        optimiser.zero_grad()
        criterion(wrapped(x), y).backward()
        optimiser.step()

    return step


METHODS: dict[str, Callable[[nn.Module, Loss, Tensor, Tensor], Step]] = {
    "plain SGD": plain,
    "plain SGD, our pooling": plain_pooled,
    "plain SGD + our noise": noise_alone,
    "ours, norms": norms,
    "ours, clipped sum": lambda *a: ours(*a, noise=False),
    "ours, clipped sum + exact noise": lambda *a: ours(*a, noise=True),
    f"the same + norms of {ACCOUNTING_SAMPLE} more": lambda *a: ours(
        *a, noise=True, accounting_sample=ACCOUNTING_SAMPLE
    ),
    "Opacus ghost": lambda *a: opacus(*a, ghost=True),
    "Opacus ghost + its noise": lambda *a: opacus(*a, ghost=True, noise=True),
    "Opacus per-sample": lambda *a: opacus(*a, ghost=False),
    "torch.func vmap": vmap,
}


def prepared(workload: str, batch: int, method: str) -> Step:
    case = WORKLOADS[workload]
    torch.manual_seed(0)
    model = case.model_of(method)
    return METHODS[method](model, case.loss, *case.records(batch))


def applicable(workload: str, batch: int) -> list[str]:
    case = WORKLOADS[workload]
    pools = bool(max_pools(case.build()))
    left_out = () if pools else ("plain SGD, our pooling",)
    return [name for name in METHODS if name not in left_out and case.takes(name, batch)]


def timed(step: Step, repeats: int) -> tuple[float, float]:
    """(processor seconds, clock seconds) of one step."""
    clock, processor = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        step()
    return (time.process_time() - processor) / repeats, (time.perf_counter() - clock) / repeats


def compare(workload: str, batch: int, rounds: int) -> dict[str, dict[str, float]]:
    steps = {name: prepared(workload, batch, name) for name in applicable(workload, batch)}
    for step in steps.values():
        step()
    once = max(timed(steps["plain SGD"], 3)[0], 1e-5)
    repeats = max(1, min(50, int(0.02 / once)))
    timings: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            timings[name].append(timed(step, repeats))
    plain_times = timings["plain SGD"]
    return {
        name: {
            "milliseconds": 1e3 * statistics.median(t[0] for t in times),
            "ratio": statistics.median(t[0] / p[0] for t, p in zip(times, plain_times, strict=True)),
            "clock_ratio": statistics.median(t[1] / p[1] for t, p in zip(times, plain_times, strict=True)),
        }
        for name, times in timings.items()
    }


def peak(workload: str, batch: int, method: str) -> float:
    """MiB that three steps need above what the process held before them."""
    prepared(workload, 2, method)()
    step = prepared(workload, batch, method)
    gc.collect()
    # From here on the kernel counts the peak anew.
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_mib(os.getpid())
    for _ in range(3):
        step()
    return peak_mib(os.getpid()) - before


def child(arguments: list[str], environment: dict[str, str]) -> Any:
    command = [sys.executable, "-m", "research.benchmarks.private_step", *arguments]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    done = subprocess.run(command, env=clean | environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def memory(workload: str, batch: int, method: str) -> dict[str, float]:
    arguments = ["--memory", method, "--one", workload, "--batch", str(batch)]
    return {"in use": child(arguments, MAPPED), "default allocator": child(arguments, {})}


def table(title: str, rows: dict[str, dict[str, float]]) -> None:
    print(f"\n{title}")
    for name, row in rows.items():
        print(f"  {name:34s}" + "  ".join(f"{key} {value:9.2f}" for key, value in row.items()), flush=True)


def everything(rounds: int, only: str | None) -> None:
    """Tables on the way, the JSON after each workload; other workloads keep their last figures."""
    report: dict[str, object] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    report |= {
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "processor": platform.processor() or platform.machine(),
        "threads": 1,
        "allocators": {**ALLOCATORS, "memory": [{}, MAPPED]},
    }
    for workload, case in WORKLOADS.items():
        if only and only not in workload:
            continue
        for batch in case.batches:
            name = f"{workload}, batch {batch}"
            entry: dict[str, object] = {"rounds": rounds, "load_average": os.getloadavg()}
            for allocator, environment in ALLOCATORS.items():
                rows = child(["--one", workload, "--batch", str(batch), "--rounds", str(rounds)], environment)
                entry[allocator] = rows
                table(f"{name}, {allocator} allocator", rows)
            peaks = {m: memory(workload, batch, m) for m in applicable(workload, batch)}
            entry["peak_mib"] = peaks
            table(f"{name}, memory above the process before (MiB)", peaks)
            report[name] = entry
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(report, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", help="part of a workload's name")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.memory:
        print(json.dumps(peak(options.one, options.batch, options.memory)))
    elif options.one:
        print(json.dumps(compare(options.one, options.batch, options.rounds)))
    else:
        everything(options.rounds, options.only)


if __name__ == "__main__":
    main()
