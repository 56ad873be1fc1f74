"""The page data of synthetic records: released answers and synthetic records side by side."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from fastapi import APIRouter, Query
from numpy.typing import NDArray
from pydantic import Field

from server.api.auth import RequestContext, SignedRoute, StudyName
from server.services.queries import records
from study_protocol.study.synthesis import STAGES
from study_protocol.wire.text import Text
from study_protocol.wire.values import Finite, Message, Sha256

router = APIRouter(prefix="/dashboard", route_class=SignedRoute, tags=["dashboard"])
Column = Annotated[str, Query(min_length=1, max_length=200, description="a column of the section synthesis")]
OtherColumn = Annotated[str | None, Query(max_length=200, description="crossed with it. Left out: one column alone")]


class SynthesisQuestion(Message):
    query: int = Field(ge=1, description="the query whose signed answer it is")
    title: Text = Field(description="which question of the rule")
    hospitals: int = Field(description="how many are in the sum")


class SynthesisState(Message):
    """How far the questions of a synthesis have come."""

    columns: list[Text] = Field(description="of the records, in order")
    outcome: Text = Field(description="the column that each other one was crossed with")
    rows: int = Field(description="how many records `wardround synth` writes")
    shown_rows: int = Field(description="how many the pictures here are made of")
    stages: int = Field(description="the most questions")
    answered: list[SynthesisQuestion] = Field(description="questions with an answer, in order")
    next_title: Text | None = Field(description="the question without an answer. null: there are synthetic records")
    next_sha256: Sha256 | None = Field(description="its digest, which the study's queries name")


class ComparedShares(Message):
    """A column, or two crossed, as shares of all patients. One list for each cell of the first column."""

    labels: list[list[Text]] = Field(description="cells or groups of each column")
    released: list[list[Finite]] | None = Field(description="from the noised answers. null: they do not hold it")
    interval: Finite = Field(description="half of the 95 % interval of the noise in one released share")
    synthetic: list[list[Finite]] | None = Field(description="of the synthetic records. null: there are none yet")


@router.get("/{study}/synthesis.json", response_model=SynthesisState)
def synthesis_json(study: StudyName, context: RequestContext) -> SynthesisState:
    """Return how far the questions of a study's synthesis have come."""
    progress = records.progress(context.coordinator, study)
    synthesis, chain = progress.synthesis, progress.chain
    document = chain.document
    return SynthesisState(
        columns=[variable.column for variable in synthesis.columns],
        outcome=synthesis.outcome,
        rows=synthesis.rows,
        shown_rows=min(synthesis.rows, records.MAX_ROWS),
        stages=max(len(chain.answers), STAGES) if document is not None else len(chain.answers),
        answered=[
            SynthesisQuestion(query=answer.query, title=question.title, hospitals=answer.hospitals)
            for question, answer in zip(chain.questions, chain.answers, strict=True)
        ],
        next_title=None if document is None else document.question.title,
        next_sha256=None if document is None else document.digest(),
    )


@router.get("/{study}/synthesis/shares.json", response_model=ComparedShares)
def synthesis_shares_json(
    study: StudyName, context: RequestContext, column: Column, by: OtherColumn = None
) -> ComparedShares:
    """Return one column, or two crossed, as released and in the synthetic records. Made anew after each answer."""
    marginal = records.marginal(context.coordinator, study, column, by)
    return ComparedShares(
        labels=[list(each) for each in marginal.labels],
        released=_listed(marginal.released),
        interval=records.interval(marginal.deviation),
        synthetic=_listed(marginal.synthetic),
    )


def _listed(values: NDArray[np.float64] | None) -> list[list[float]] | None:
    return None if values is None else values.tolist()
