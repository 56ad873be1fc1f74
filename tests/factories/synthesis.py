"""A section `synthesis`, and answers to its questions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.marginals import Marginals
from study_protocol.study.queries import PublishedAnswer, QueryDocument, QueryNoise
from study_protocol.study.synthesis import Synthesis

COLUMNS = [
    {"column": "age", "edges": [30, 40, 50, 60, 70, 80, 90]},
    {"column": "sex", "categories": ["f", "m"]},
    {"column": "pressure", "edges": [90, 120, 150]},
    {"column": "ill", "categories": ["0", "1"]},
]
SECTION: dict[str, Any] = {"columns": COLUMNS, "outcome": "ill", "allowance": 0.5, "shares": [10, 50, 40]}


def section(**entries: Any) -> Synthesis:
    return Synthesis.model_validate(SECTION | entries)


def drawn(question: Marginals, patients: int, source: np.random.Generator) -> list[NDArray[np.int64]]:
    """The cells of so many patients in each column.

    The columns but the outcome depend on each other: half of their values follow from one number of the patient.
    """
    same, cells = source.random(patients), list[NDArray[np.int64]]()
    for variable in question.variables:
        size = len(variable.labels)
        alone = source.integers(size, size=patients)
        follows = (source.random(patients) < 0.5) & (variable.column != SECTION["outcome"])
        cells.append(np.where(follows, (same * size).astype(np.int64), alone))
    return cells


def answered(document: QueryDocument, patients: int, seed: int = 0, std: float = 0.0) -> PublishedAnswer:
    """The answer that so many patients, drawn with this seed, would give. Unsigned."""
    question, source = document.question, np.random.default_rng(seed)
    assert isinstance(question, Marginals)
    cells, numbers = drawn(question, patients, source), question.groups or ((),) * len(question.variables)
    places = [np.array(groups)[column] if groups else column for column, groups in zip(cells, numbers, strict=True)]
    parts = [
        np.bincount(np.ravel_multi_index([places[number] for number in clique], shape), minlength=int(np.prod(shape)))
        * times
        for clique, shape, times in zip(question.cliques, question.shapes, question.times, strict=True)
    ]
    total = np.concatenate(parts) + source.normal(0, std, question.cells) * question.sensitivity
    grid = question.grid()
    sure = grid.std * grid.spacing
    return PublishedAnswer(
        study="registry",
        query=question.stage,
        sha256=document.digest(),
        round=question.stage,
        hospitals=4,
        noise=QueryNoise(guaranteed=sure, present=sure, spacing=grid.spacing),
        answer=question.answer(NoisedSum(total, sure, 1)),
        warning="",
        ledger_entries=question.stage,
        ledger_sha256="0" * 64,
    )
