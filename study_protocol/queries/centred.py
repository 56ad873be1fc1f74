"""Squares less one half: the entry `centred` of questions that sum squares. They need less noise than plain squares.

(1, y, y² - ½) has the squared norm f(t) = 1 + t + (t - ½)² with t = y² in [0, 1]. f is convex, so it is largest at an
end: f(0) = 5/4 and f(1) = 9/4. One number therefore has Δ = 3/2, and m numbers have Δ = 3/2·√m. (1, y, y²) has Δ = √3.
The sum of y² is the third sum plus half the number of patients, so that its noise has 5/4 of the variance of one sum.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, Field

from study_protocol.versions import CENTRED_SQUARES, UNNUMBERED

CENTRE = 0.5
Centred = Annotated[
    bool,
    Field(
        strict=True,
        # Questions of earlier versions keep their digest.
        exclude_if=lambda centred: not centred,
        description="sum squares less ½, with less noise. From protocol 3 on",
    ),
]
_Question = TypeVar("_Question", bound=BaseModel)


def protocol_of(centred: bool) -> int:
    """Return the least number of the protocol with which a program reads a question in this form."""
    return CENTRED_SQUARES if centred else UNNUMBERED


def centred_where_open(question: _Question, protocol: int) -> _Question:
    """Return the question in centred form, if its document leaves the form open and such programs read it.

    Args:
        protocol: the number that all programs of the study speak.
    """
    if protocol < CENTRED_SQUARES or "centred" in question.model_fields_set:
        return question
    return question.model_copy(update={"centred": True})
