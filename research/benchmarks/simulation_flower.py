"""Rounds of Flower's simulation on Ray, for `research.benchmarks.simulation`.

Runs in an environment of its own, with flwr[simulation] and torch installed, as `PYTHON simulation_flower.py REQUEST`:
REQUEST is a JSON file, the answer is the last line of output. Engine, FedAvg, clipping at the clients, noise and
accountant are Flower's own; the client's step is plain torch. Model and records are made once per actor.
"""

from __future__ import annotations

import functools
import json
import logging
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg
from flwr.simulation import run_simulation
from flwr.supercore.privacy_accounting import NeighboringRelation, PrivacyConfig, SamplingMethod
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant
from simulation_work import rows_of, small_cnn
from torch import nn

DELTA = 1e-6
logging.getLogger("flwr").setLevel(logging.ERROR)


@functools.cache
def model_and_records(folder: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """The model and the records of this process."""
    torch.set_num_threads(1)
    x, y = (torch.from_numpy(np.load(Path(folder) / f"{name}.npy", mmap_mode="c")) for name in ("x", "y"))
    return small_cnn(), x, y


def train(message: Message, context) -> Message:
    """One epoch of one batch, plain SGD."""
    config = message.content["config"]
    model, x, y = model_and_records(config["folder"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    rows = torch.from_numpy(rows_of(context.node_config["partition-id"], config["records"], len(y)))
    optimiser = torch.optim.SGD(model.parameters(), lr=config["learning-rate"])
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
    optimiser.step()
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(rows)})}
    return Message(RecordDict(content), reply_to=message)


def client_app(*, private: bool) -> ClientApp:
    app = ClientApp(mods=[fixedclipping_mod] if private else [])
    app.train()(train)
    return app


class TimedFedAvg(FedAvg):
    """FedAvg that knows when every round began, and the weights after the first."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.begins, self.first = [], None

    def configure_train(self, server_round, arrays, config, grid):
        self.begins.append(time.time())
        if server_round == 2:
            self.first = arrays.to_torch_state_dict()
        return super().configure_train(server_round, arrays, config, grid)


def strategies(request: dict) -> tuple[TimedFedAvg, object]:
    """FedAvg that is timed, and what runs: itself, or the same with differential privacy around it."""
    cohort = request["cohort"]
    inner = TimedFedAvg(
        fraction_train=cohort / request["clients"],
        fraction_evaluate=0.0,
        min_train_nodes=cohort,
        min_available_nodes=request["clients"],
    )
    if not request["private"]:
        return inner, inner
    # Flower credits no sampling where it clips.
    config = PrivacyConfig(
        target_delta=DELTA,
        population_size=request["clients"],
        neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
        sampling_method=SamplingMethod.NO_AMPLIFICATION,
    )
    outer = DifferentialPrivacyClientSideFixedClipping(
        inner, request["noise_multiplier"], request["clip_norm"], cohort, accountant=RdpAccountant(config)
    )
    return inner, outer


def rounds(request: dict) -> dict:
    folder = Path(request["folder"])
    inner, outer = strategies(request)
    server = ServerApp()

    @server.main()
    def main(grid, context) -> None:
        arrays = {name: torch.from_numpy(a) for name, a in np.load(folder / "weights.npz").items()}
        config = {"folder": str(folder), "records": request["records"], "learning-rate": request["learning_rate"]}
        outer.start(
            grid=grid,
            initial_arrays=ArrayRecord(arrays),
            num_rounds=request["rounds"] + 1,
            train_config=ConfigRecord(config),
        )
        inner.begins.append(time.time())

    run_simulation(
        server_app=server,
        client_app=client_app(private=request["private"]),
        num_supernodes=request["clients"],
        backend_config={
            "init_args": {"num_cpus": request["cores"], "log_to_driver": False, "logging_level": "ERROR"},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    if not request["private"]:
        np.savez(folder / "after-flower.npz", **{name: value.numpy() for name, value in inner.first.items()})
    return {
        # A round ends where the next one begins.
        "ends": inner.begins,
        "versions": {name: version(name) for name in ("flwr", "ray", "torch", "numpy")},
    }


def main() -> None:
    print(json.dumps(rounds(json.loads(Path(sys.argv[1]).read_text()))), flush=True)


if __name__ == "__main__":
    # By its name, so that Ray sends the client's function by reference and not its code with every message.
    from simulation_flower import main as run

    run()
