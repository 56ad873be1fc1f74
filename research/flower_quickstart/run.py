"""Run one of the two apps in Flower's simulation: python -m research.flower_quickstart.run plain|kept FOLDER.

Runs in an environment with flwr[simulation], torch, and what `pip install 'wardround[flower]'` brings. Prints one line
of JSON: the model's accuracy and the seconds of the run.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from importlib import import_module
from pathlib import Path

HOSPITALS = 4


def main() -> None:
    """Run the app that the command line names."""
    name, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    os.environ["QUICKSTART_HOMES"] = str(folder)
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.chdir(folder)
    import torch
    from flwr.simulation import run_simulation

    from research.flower_quickstart.task import accuracy, load_data, net

    logging.getLogger("flwr").setLevel(logging.WARNING)
    prefix = "research.flower_quickstart." + {"plain": "", "kept": "kept_"}[name]
    apps = (import_module(f"{prefix}server_app").app, import_module(f"{prefix}client_app").app)
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    start = time.perf_counter()
    run_simulation(*apps, num_supernodes=HOSPITALS, backend_config=resources)
    seconds, model = time.perf_counter() - start, net()
    model.load_state_dict(torch.load("final_model.pt"))
    print(json.dumps({"accuracy": accuracy(model, *load_data(1000)), "seconds": seconds}))


if __name__ == "__main__":
    main()
