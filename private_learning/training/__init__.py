"""One round at one hospital: from the received weights to the update, private where the scheme asks for it."""

from private_learning.training.checkpoint import Checkpoint, Checkpoints
from private_learning.training.gradients import Contribution, clipped, projected
from private_learning.training.local import LocalTraining
from private_learning.training.weights import spec_of_model, weights_of

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
