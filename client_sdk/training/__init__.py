"""One round at one hospital: from the received weights to the update, private where the scheme asks for it."""

from client_sdk.training.checkpoint import Checkpoint, Checkpoints
from client_sdk.training.gradients import clipped, projected
from client_sdk.training.local import Contribution, LocalTraining
from client_sdk.training.weights import spec_of_model, weights_of

__all__ = [
    "Checkpoint",
    "Checkpoints",
    "Contribution",
    "LocalTraining",
    "clipped",
    "projected",
    "spec_of_model",
    "weights_of",
]
