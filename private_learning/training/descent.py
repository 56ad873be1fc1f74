"""A client's local steps along gradients that are noised already, so that further operations on them cost no privacy.

The optimiser is new in every round. A hospital that missed some rounds has no state to remember, and an update
depends on the released model and the round's own noised gradients alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from private_learning.gradients.inspection import trainable
from study_protocol.study.settings import StudySettings


class Descent:
    """Steps of the study's local optimiser on the model's trainable parameters, in place.

    model         holds the received weights. With `proximal` every step is drawn back to them.
    round_number  fixes the learning rate, with the study's schedule. From 1 to the number of rounds.
    """

    def __init__(self, model: nn.Module, settings: StudySettings, round_number: int) -> None:
        training = settings.training
        share = training.learning_rate_schedule.share(round_number, settings.rounds)
        self._parameters, self._prior = trainable(model), training.prior
        self._rate = training.learning_rate * share
        self._proximal = training.proximal
        self._received = {name: p.detach().clone() for name, p in self._parameters.items()} if self._proximal else {}
        # None: plain steps, for which torch's optimisers would take seconds to import.
        self._optimiser = _optimiser(settings, list(self._parameters.values()), self._rate)

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        """One step against the gradients, the prior's and the proximal term's.

        FedProx (Li et al. 2020, equation 2) adds µ/2·‖w − received‖² to the loss. Its gradient is added here, after the
        noise: it depends on released and noised values alone, so no clip and no cost changes.

        Args:
            gradients: parameter name -> tensor of its shape, noised where the study has local noise.
        """
        if self._optimiser is None:
            with torch.no_grad():
                for name, parameter in self._parameters.items():
                    parameter.add_(self._whole(name, gradients[name], parameter), alpha=-self._rate)
            return
        for name, parameter in self._parameters.items():
            parameter.grad = self._whole(name, gradients[name], parameter)
        self._optimiser.step()
        self._optimiser.zero_grad(set_to_none=True)

    def _whole(self, name: str, gradient: Tensor, parameter: Tensor) -> Tensor:
        """The gradient with the prior's and the proximal term's, if the study has them, in the parameter's type."""
        if self._prior is not None:
            pull = torch.as_tensor(self._prior.gradient(name, parameter.detach().cpu().numpy()))
            gradient = gradient.double() + pull.to(gradient.device)
        gradient = gradient.to(parameter)
        if self._proximal:
            gradient = gradient.add(parameter.detach() - self._received[name], alpha=self._proximal)
        return gradient

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the state that the next step depends on: parameter name -> weights, and the optimiser's `state_dict`.

        The latter is empty for plain steps.
        """
        # Views on the CPU: what is made of them is written before the next step.
        weights = {name: parameter.detach().cpu() for name, parameter in self._parameters.items()}
        return weights, {} if self._optimiser is None else self._optimiser.state_dict()

    def restore(self, weights: Mapping[str, Tensor], optimiser: dict[str, Any]) -> None:
        """Continue from the state that `state` returned."""
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(weights[name])
        if self._optimiser is not None:
            self._optimiser.load_state_dict(optimiser)


def _optimiser(settings: StudySettings, parameters: list[nn.Parameter], rate: float) -> torch.optim.Optimizer | None:
    optimiser = settings.training.local_optimiser
    if optimiser.name == "adam":
        betas = (optimiser.momentum, optimiser.second_momentum)
        return torch.optim.Adam(parameters, lr=rate, betas=betas, eps=optimiser.stability)
    return torch.optim.SGD(parameters, lr=rate, momentum=optimiser.momentum) if optimiser.name == "momentum" else None
