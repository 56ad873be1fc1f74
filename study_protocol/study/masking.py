"""Settings of the secure sum: how many may collude, who exchanges masks with whom, and how many must stay."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from study_protocol.wire.values import Finite, Message, Whole

MAX_CLIENTS = 1_000  # of a secure sum


def min_promise(colluders: int, *, allow_three: bool) -> int:
    """Return the smallest `min_survivors` that some session of a study can have. Any larger number of clients is sound.

    It is c + 3. A sum of three is of three clients and bears one colluder, so allowing it helps no study with more of
    them.
    """
    return 3 if allow_three and colluders <= 1 else colluders + 3


class Masking(Message):
    """The secure sum: the coordinator learns sums, never one client's vector."""

    colluders: Whole = Field(
        ge=1,
        le=MAX_CLIENTS - 3,
        description="how many hospitals may tell the coordinator all they know. More: more must stay",
    )
    neighbours: Annotated[Whole, Field(le=MAX_CLIENTS)] | None = Field(
        description="with how many others each exchanges masks, even. Left out: all. Fewer: faster among hundreds, "
        "fewer losses are borne"
    )
    min_survivors: Whole = Field(
        ge=3,
        le=MAX_CLIENTS,
        description="no sum of fewer hospitals is opened: at least colluders + 3",
    )
    mask_updates: bool = Field(description="also updates, not only log-moments and metrics")
    allow_three: bool = Field(description="sums of three hospitals, of which only two need be honest")
    step_deadline_seconds: Annotated[Finite, Field(gt=0, le=30 * 86400)] = Field(
        description="how long one step waits for a hospital"
    )
    expiry_seconds: Annotated[Finite, Field(gt=0, le=90 * 86400)] = Field(
        description="when its secrets are erased: a few step deadlines"
    )

    @field_validator("min_survivors", mode="before")
    @classmethod
    def _three_at_least(cls, value: object) -> object:
        if isinstance(value, int) and value < 3:
            raise ValueError(
                "masks need three hospitals at least: of a sum of two, each could compute the other's value. Enrol one "
                "more, or leave section privacy.masking out"
            )
        return value

    @model_validator(mode="after")
    def _enough_honest_survivors(self) -> Self:
        minimum = min_promise(self.colluders, allow_three=self.allow_three)
        if self.min_survivors < minimum:
            honest = "fewer than three honest clients beside the colluders, or two among three clients"
            raise ValueError(f"min_survivors must be at least {minimum}: no sum is opened that leaves {honest}")
        return self

    @model_validator(mode="after")
    def _neighbourhoods_bear_the_colluders(self) -> Self:
        c = self.colluders
        # Half of them lie on either side, and colluders alone must not be able to cut the graph there.
        if self.neighbours is not None and (self.neighbours % 2 or self.neighbours <= c):
            borne = f"of a hospital and its k neighbours (k - {c}) // 2 may then be lost"
            raise ValueError(f"neighbours must be an even number k, at least {c + 2 - c % 2}: {borne}")
        return self

    def neighbours_among(self, clients: int) -> int:
        """Return with how many others each of so many clients exchanges shares and masks: all, if that is no more."""
        return clients - 1 if self.neighbours is None else min(self.neighbours, clients - 1)

    @property
    def honest_survivors(self) -> int:
        """Noise shares in every sum that do not come from colluders."""
        return self.min_survivors - self.colluders
