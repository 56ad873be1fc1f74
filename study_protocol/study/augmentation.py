"""Several views of one record: public random changes of an image or a signal, averaged before the clip."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from study_protocol.wire.values import Finite, Message, Share, Whole

Degrees = Annotated[Finite, Field(ge=0, le=180)]
Amount = Annotated[Finite, Field(ge=0, le=1)]


class Augmentation(Message):
    """Views of each record in each step: augmentation multiplicity.

    Source: De et al. 2022, "Unlocking High-Accuracy Differentially Private Image Classification through Scale", section
    3.

    The gradient of a record is the mean over its views and is clipped as one. A record still moves the sum by the clip
    norm at most, and ε is the same. Every change is drawn evenly within its range.
    """

    views: Whole = Field(
        ge=1, le=64, description="of each record in each step, 4 to 16. A step takes that many times as long"
    )
    shift: Whole = Field(default=0, ge=0, le=1024, description="up to so many pixels or samples, either way")
    flip: bool = Field(default=False, description="mirror left and right in half of the views, unless the side matters")
    rotation: Degrees = Field(default=0.0, description="of an image, up to so many degrees, either way")
    scale: Share = Field(default=0.0, description="larger or smaller by up to this share. Of a signal: its values")
    contrast: Amount = Field(default=0.0, description="of an image: values times 1 ± this, at most")
    brightness: Amount = Field(default=0.0, description="added, at most, either way. Inputs lie in −1 … 1")
    noise: Amount = Field(default=0.0, description="standard deviation of normal noise on every value")

    @property
    def moves(self) -> bool:
        """Whether something lies elsewhere in a view than in its record."""
        return bool(self.shift or self.flip or self.rotation or self.scale)

    @model_validator(mode="after")
    def _something_changes(self) -> Self:
        if not (self.moves or self.contrast or self.brightness or self.noise):
            raise ValueError("augmentation has no change: name one, such as shift, or leave the section out")
        return self
