"""The released models that a study's result is the mean of, where its settings name one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from study_protocol.study.averaging import averaged_rounds, mean_weights
from study_protocol.study.training import Averaging
from study_protocol.wire.tensors import Array

_PREFIX = "released/"


@dataclass(repr=False)
class Released:
    """Fills as rounds release their models. Those that count no more are let go.

    averaging  None: the result is the newest model, and no earlier one is kept
    rounds     that released a model, ascending
    """

    averaging: Averaging | None
    rounds: list[int] = field(default_factory=list[int])
    _models: dict[int, Mapping[str, Array]] = field(default_factory=dict[int, Mapping[str, Array]])

    def take(self, round_number: int, weights: Mapping[str, Array]) -> None:
        """The model of a round, after those before it."""
        if self.averaging is None:
            return
        self.rounds.append(round_number)
        self._models[round_number] = weights
        averaged = averaged_rounds(self.averaging, self.rounds)
        self._models = {number: model for number, model in self._models.items() if number in averaged}

    @property
    def result(self) -> Mapping[str, Array] | None:
        """The mean, as `wardround study model` takes it of files. None: the newest model itself."""
        if self.averaging is None or not self.rounds:
            return None
        shares = averaged_rounds(self.averaging, self.rounds)
        equal = len(set(shares.values())) == 1
        return mean_weights([self._models[number] for number in shares], None if equal else list(shares.values()))

    def arrays(self) -> dict[str, Array]:
        """Everything that `restore` needs beside `rounds`."""
        return {
            f"{_PREFIX}{number}/{name}": array
            for number, model in self._models.items()
            for name, array in model.items()
        }

    def restore(self, rounds: Sequence[int], arrays: Mapping[str, Array]) -> None:
        """Stand where `rounds` and `arrays` were taken."""
        self.rounds, model_of_round = list(rounds), dict[int, dict[str, Array]]()
        for key, array in arrays.items():
            if key.startswith(_PREFIX):
                number, _, name = key.removeprefix(_PREFIX).partition("/")
                model_of_round.setdefault(int(number), {})[name] = array
        self._models = dict(model_of_round)
