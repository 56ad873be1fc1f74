"""The server of Flower's quickstart with a kept budget."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from research.flower_quickstart.task import net
from wardround.flower import KeptRounds, RoundTerms, RunLedger

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train over all connected clients, and write the model."""
    arrays = ArrayRecord(net().state_dict())
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=4, min_available_nodes=4)
    ledger = RunLedger("runs.db", epsilon=8.0, delta=1e-5)
    strategy = KeptRounds(strategy, ledger, RoundTerms(noise_multiplier=2.0, clip_norm=1.0))
    result = strategy.start(
        grid=grid, initial_arrays=arrays, train_config=ConfigRecord({"lr": 0.5}), num_rounds=8, timeout=600
    )
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
