"""Rounds of pfl-research's simulation, for `research.benchmarks.simulation`.

Runs in an environment of its own, with pfl and torch installed, as `PYTHON research/benchmarks/simulation_pfl.py
REQUEST`: REQUEST is a JSON file, the answer is the last line of output. For several cores it starts as many processes
of itself, which pfl joins by torch.distributed; torchrun would give each a session of its own, and with that a larger
share of a busy machine. Model, optimisers, clipping, noise, accountant, checkpoints and the rounds are pfl's own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.restore_training import RestoreTrainingCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.internal.ops.pytorch_ops import distributed
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy.gaussian_mechanism import GaussianMechanism
from pfl.privacy.privacy_accountant import RDPPrivacyAccountant
from pfl.privacy.privacy_mechanism import CentrallyAppliedPrivacyMechanism
from simulation_work import rows_of, small_cnn
from torch import nn

DELTA = 1e-6


class Classifier(nn.Module):
    """With the two methods that pfl asks of a model."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def loss(self, x, y):
        return nn.functional.cross_entropy(self.layers(x), y)

    @torch.no_grad()
    def metrics(self, x, y):
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


class Clock(TrainingProcessCallback):
    """When every round was over, after the beginning; and the weights after the first."""

    def __init__(self) -> None:
        self.ends, self.first = [time.time()], {}

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.ends.append(time.time())
        if central_iteration == 0:
            state = model.pytorch_model.layers.state_dict()
            self.first = {name: value.numpy().copy() for name, value in state.items()}
        return False, Metrics()


def federated(folder: Path, clients: int, records: int) -> FederatedDataset:
    x, y = (torch.from_numpy(np.load(folder / f"{name}.npy", mmap_mode="c")) for name in ("x", "y"))

    def of(client: int) -> Dataset:
        rows = torch.from_numpy(rows_of(client, records, len(y)))
        return Dataset((x[rows], y[rows]), user_id=str(client))

    return FederatedDataset(of, MinimizeReuseUserSampler(range(clients)))


def mechanism(request: dict) -> CentrallyAppliedPrivacyMechanism:
    """Gaussian noise on the sum of clipped updates, with the accountant that finds its ε."""
    accountant = RDPPrivacyAccountant(
        num_compositions=request["rounds"] + 1,
        sampling_probability=request["cohort"] / request["clients"],
        mechanism="gaussian",
        delta=DELTA,
        noise_parameter=request["noise_multiplier"],
    )
    return CentrallyAppliedPrivacyMechanism(GaussianMechanism.from_privacy_accountant(accountant, request["clip_norm"]))


def rounds(request: dict) -> dict:
    folder = Path(request["folder"])
    layers = small_cnn()
    layers.load_state_dict({name: torch.from_numpy(a) for name, a in np.load(folder / "weights.npz").items()})
    model = PyTorchModel(
        Classifier(layers),
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(layers.parameters(), lr=1.0),
    )
    data = federated(folder, request["clients"], request["records"])
    private = [mechanism(request)] if request["private"] else []
    algorithm, clock = FederatedAveraging(), Clock()
    callbacks = [RestoreTrainingCallback([algorithm, model], str(folder / "pfl"))] if request["private"] else []
    algorithm.run(
        # Every client is measured by pfl in round 0, which is reported by itself.
        NNAlgorithmParams(
            central_num_iterations=request["rounds"] + 1,
            evaluation_frequency=10**9,
            train_cohort_size=request["cohort"],
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=data, val_data=data, postprocessors=private),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=request["learning_rate"], local_batch_size=None),
        NNEvalHyperParams(local_batch_size=None),
        callbacks=[*callbacks, clock],
        send_metrics_to_platform=False,
    )
    if not request["private"] and distributed.global_rank == 0:
        np.savez(folder / "after-pfl.npz", **clock.first)
    return {
        "ends": clock.ends,
        "versions": {name: version(name) for name in ("pfl", "torch", "numpy")},
    }


def together(count: int) -> None:
    """Processes that know one another as torchrun's do."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    ranks = [
        subprocess.Popen([sys.executable, *sys.argv], env=os.environ | shared | {"RANK": str(k), "LOCAL_RANK": str(k)})
        for k in range(count)
    ]
    codes = [rank.wait() for rank in ranks]
    if any(codes):
        raise SystemExit("a process of pfl failed")


def main() -> None:
    torch.set_num_threads(1)
    request = json.loads(Path(sys.argv[1]).read_text())
    if request["cores"] > 1 and "RANK" not in os.environ:
        together(request["cores"])
        return
    result = rounds(request)
    if distributed.global_rank == 0:
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
