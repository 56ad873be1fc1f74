"""The terms of one round of a Flower run: whose unit is protected, and by which noise. They travel with the model."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from client_sdk.errors import ConfigurationError
from client_sdk.guard.charges import Charge
from study_protocol.wire.values import Positive
from wardround.flower.run_limit import charge_of

_PREFIX = "wardround-"
# Names of entries in the configuration of a round that are no terms.
RUN, LEDGER_HEAD = f"{_PREFIX}run", f"{_PREFIX}ledger-head"
# What a hospital's ledger takes of a server's words, which are shown on its terminal.
_RUN, _HEAD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"), re.compile(r"[0-9]{1,18}:[0-9a-f]{64}")


def checked_run(name: object) -> str:
    """Return the name of a run. Raises ConfigurationError: it is none."""
    if _RUN.fullmatch(str(name)) is None:
        raise ConfigurationError("a run's name has at most 100 letters, digits, dots, hyphens and underscores")
    return str(name)


def head_within(config: Mapping[str, Any]) -> str:
    """Return the head of the server's ledger that came with a round, or nothing where none came. Raises as above."""
    head = str(config.get(LEDGER_HEAD, ""))
    if head and _HEAD.fullmatch(head) is None:
        raise ConfigurationError("the head of the server's ledger is not a number and a SHA-256")
    return head


@dataclass(frozen=True)
class PatientTraining:
    """The private training of a hospital's own program, such as one with Opacus, in one round.

    noise_multiplier  σ of each step, over the clip norm of one record
    sampling_rate     q of Poisson sampling. Other samplings have rate 1
    steps             noised steps
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int

    def charge(self) -> Charge:
        """Return what it costs each record. Raises InvalidArgument: a number is out of its range."""
        return charge_of("instance", self.noise_multiplier, self.sampling_rate, self.steps)


class RoundTerms(BaseModel):
    """The terms of every round.

    With unit `hospital`, each hospital clips its whole update to clip_norm and adds noise of noise_multiplier ×
    clip_norm to it. Of h honest hospitals the sum has √h times that. With unit `patient`, each hospital's program adds
    noise to its gradients, so that the numbers are those of its steps.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    unit: Literal["hospital", "patient"] = "hospital"
    noise_multiplier: Annotated[Positive, Field(le=1e9, description="noise of one hospital, over the clip norm")]
    # Between them the grid of the noise is an ordinary number.
    clip_norm: Annotated[Positive, Field(ge=1e-50, le=1e50)] = Field(
        default=1.0, description="L2 norm of one hospital's update at most. Unit hospital"
    )
    min_honest: int = Field(
        default=1, ge=1, description="hospitals whose noise the server's ledger counts together. Unit hospital"
    )
    sampling_rate: float = Field(default=1.0, gt=0, le=1, description="of Poisson sampling. Unit patient")
    steps: int = Field(default=1, ge=1, description="noised steps of one round. Unit patient")

    @property
    def counts_sum(self) -> bool:
        """Whether the server's ledger counts the noise of several hospitals together, which is in their sum alone."""
        return self.unit == "hospital" and self.min_honest > 1

    def released(self) -> Charge:
        """Return the cost of one round for those who see released models alone: the noise of min_honest hospitals."""
        if self.unit == "patient":
            return self.sent()
        # Down: less noise, more cost. The exact integers of several hospitals add up to one law on one grid.
        together = math.nextafter(self.noise_multiplier * math.sqrt(self.min_honest), 0.0)
        return charge_of("client", self.noise_multiplier if self.min_honest == 1 else together)

    def sent(self) -> Charge:
        """Return the cost of one round for the server, which sees each update with its hospital's noise alone."""
        if self.unit == "hospital":
            return charge_of("client", self.noise_multiplier)
        return charge_of("instance", self.noise_multiplier, self.sampling_rate, self.steps)

    def allows(self, training: PatientTraining) -> bool:
        """Return whether a training costs no more than these terms say."""
        return (
            training.noise_multiplier >= self.noise_multiplier
            and training.sampling_rate <= self.sampling_rate
            and training.steps <= self.steps
        )

    def to_config(self) -> dict[str, str | int | float]:
        """Return entries for the configuration of a round."""
        return {f"{_PREFIX}{name}": value for name, value in self.model_dump().items()}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the terms in the configuration of a round.

        Raises:
            ConfigurationError: there are none, or wrong ones.
        """
        no_terms = {RUN, LEDGER_HEAD}
        entries = {
            name.removeprefix(_PREFIX): value
            for name, value in config.items()
            if name.startswith(_PREFIX) and name not in no_terms
        }
        try:
            return cls.model_validate(entries)
        except ValidationError as error:
            wrong = ", ".join(sorted({".".join(map(str, fault["loc"])) for fault in error.errors()}))
            raise ConfigurationError(
                f"the round's configuration names no terms, or wrong ones ({wrong}): the server's strategy needs "
                "wardround.flower.KeptRounds"
            ) from None
