"""How much of the worst case training has cost each patient, by hospital: for whom a Bayesian number does not speak."""

from __future__ import annotations

import itertools
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from study_protocol.queries.answer import (
    ERRORS,
    ESTIMATE,
    HIGH,
    LOW,
    RAW,
    Answer,
    AnswerTable,
    NoisedSum,
    Plot,
    rows_of,
)
from study_protocol.queries.by_hospital import ByHospitalOnly, HospitalQuestion
from study_protocol.queries.counting import counts
from study_protocol.queries.ratios import Quadratic, of_share, ratios
from study_protocol.queries.variables import Patients
from study_protocol.versions import DISTANCES

# Beside the columns of the hospital's table. A control character can be in no column's name.
LOSS = "\x00loss"
# Upper ends of the bins. Few: the noise of every bin hides patients. Narrow at the top, which decides a mean of e^X.
EDGES = (0.01, 0.05, 0.25, 0.5, 0.7, 0.8, 0.9, 1.0)
LABELS = tuple(f"{low:.0%} to {high:.0%}" for low, high in itertools.pairwise((0.0, *EDGES)))
CLIPPED, TABLE = "clipped", "distances"


class Distances(HospitalQuestion):
    """Patients who are trained on, by their loss so far as a share of the most it can be.

    One patient's vector is one-hot: Δ = 1. The loss is the patient's running sum of log-moments at the order that
    keeps the study's Bayesian limit, which grows with the distance by which the patient moved each noised sum. The last
    bin holds those whose gradients reached the clip norm in nearly every step.
    """

    kind: Literal["distances"] = Field(description="what is asked")
    by: ByHospitalOnly = None

    @model_validator(mode="after")
    def _is_about_everybody(self) -> Self:
        if self.where:
            raise ValueError("where: distances are those of all patients who are trained on. Leave it out")
        return self

    @property
    def protocol(self) -> int:
        return DISTANCES

    @property
    def block(self) -> int:
        return len(EDGES)

    @property
    def sensitivity(self) -> float:
        return 1.0

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        # What is no number, or above the most, counts in the last bin.
        losses: NDArray[np.float64] = np.asarray(patients[LOSS], np.float64)
        places = np.minimum(np.searchsorted(EDGES, losses, side="left"), len(EDGES) - 1)
        return np.bincount(places, minlength=len(EDGES)).astype(np.int64) * round(1 / spacing)

    def block_answer(self, noised: NoisedSum) -> Answer:
        variance = np.full(len(EDGES), noised.std**2)
        cells = counts(noised.total, variance)
        distances = AnswerTable(
            name=TABLE,
            title="patients by their loss, as a share of the most it can be",
            columns=("loss", ESTIMATE, RAW, *ERRORS),
            rows=rows_of([(label,) for label in LABELS], cells.estimate, cells.raw, *cells.errors),
            counts=ESTIMATE,
            plot=Plot(kind="bars", x="loss", y=ESTIMATE, low=LOW, high=HIGH),
        )
        total = np.array([noised.total.sum()])
        # Var(top - r·total) of the noise: that of the last bin is in both.
        spread = noised.std**2 * np.array([[1.0], [-2.0], [float(len(EDGES))]])
        share = ratios(noised.total[-1:], total, Quadratic(*spread), of_share(total))
        clipped = AnswerTable(
            name=CLIPPED,
            title=f"share of patients above {EDGES[-2]:.0%}: clipped in nearly every step",
            columns=(ESTIMATE, *ERRORS),
            rows=rows_of([()], share.estimate, *share.errors),
        )
        return Answer(tables=(distances, clipped))

    def in_words(self) -> str:
        return f"How much training has cost each patient, as a share of the most it can be{self.who_in_words()}"
