"""What synthetic records will be worth, from public numbers alone: the rule and the model run on simulated patients.

Simulated columns have bins of a bell curve, or categories of which some are common and most rare. Three hidden factors
and the outcome tie them together. How closely was set on one public table (Adult), see `research.synthesis.forecast`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.marginals import Marginals
from study_protocol.queries.variables import MISSING, OTHER_LABEL, Variable
from study_protocol.study.queries import PublishedAnswer, QueryDocument, QueryNoise
from study_protocol.study.synthesis import Synthesis
from synthesis.chain import follow
from synthesis.model.arithmetic import Integers
from synthesis.released import records_of

FEW_PATIENTS = 2_000
"""With fewer, pairs of columns are not worth their noise, and records say little of what belongs together."""
# More patients are simulated by larger counts, and more records hardly change a table.
_MOST_PATIENTS, _MOST_ROWS = 100_000, 100_000
# Columns of all simulated tables together.
_COLUMNS = 40
_FACTORS = 3
# Share of a column's missing values and of other categories. A presence is missing in a fifth.
_MISSING, _OTHER, _ABSENT = 0.01, 0.002, 0.2


@dataclass(frozen=True)
class SynthesisForecast:
    """What to expect.

    patients   of all hospitals
    variation  mean total variation distance, 0 to 1, between the tables of all pairs of columns of records and patients
    pairs      pairs of columns that are counted in groups, by outcome
    edges      pairs of a forest that are counted in full, on average over the simulated tables
    """

    patients: int
    variation: float
    pairs: int
    edges: float

    @property
    def has_few_patients(self) -> bool:
        return self.patients < FEW_PATIENTS


def forecast(synthesis: Synthesis, patients: int, seed: int = 0) -> SynthesisForecast:
    """Return the forecast for so many patients, a mean over simulated tables. It takes seconds.

    Raises:
        ValueError: fewer than one patient.
    """
    if patients < 1:
        raise ValueError("a forecast needs at least one patient")
    # Of few columns one table says little.
    tables = max(1, round(_COLUMNS / len(synthesis.columns)))
    figures = [_of_one_table(synthesis, patients, np.random.default_rng([seed, table])) for table in range(tables)]
    variation, pairs, edges = np.mean(figures, axis=0).tolist()
    return SynthesisForecast(patients, variation, round(pairs), edges)


def _of_one_table(synthesis: Synthesis, patients: int, generator: np.random.Generator) -> tuple[float, int, int]:
    codes = typical_patients(synthesis, min(patients, _MOST_PATIENTS), generator)
    answers: dict[str, PublishedAnswer] = {}
    while (chain := follow(synthesis, answers.get)).document is not None:
        answers[chain.document.digest()] = simulated_answer(chain.document, codes, patients, generator)
    fewer = synthesis.model_copy(update={"rows": min(synthesis.rows, _MOST_ROWS)})
    sizes = [len(variable.labels) for variable in synthesis.columns]
    counts = [sum(len(clique) == 3 for clique in question.cliques) for question in chain.questions]
    return mean_variation(sizes, codes, records_of(fewer, chain)), counts[1], sum(counts[2:])


def mean_variation(sizes: list[int], first_rows: Integers, second_rows: Integers) -> float:
    """Return the mean over all pairs of columns of the total variation between two sets of records (n, columns)."""
    distances: list[float] = []
    for first_column, second_column in itertools.combinations(range(len(sizes)), 2):
        shares = [
            np.bincount(
                rows[:, first_column] * sizes[second_column] + rows[:, second_column],
                minlength=sizes[first_column] * sizes[second_column],
            )
            / len(rows)
            for rows in (first_rows, second_rows)
        ]
        distances.append(float(np.abs(shares[0] - shares[1]).sum()) / 2)
    return float(np.mean(distances))


def typical_patients(synthesis: Synthesis, count: int, generator: np.random.Generator) -> Integers:
    """Return simulated patients as cells of each column, shape (count, columns)."""
    factors = generator.normal(size=(count, _FACTORS))
    codes = np.zeros((count, len(synthesis.columns)), np.int64)
    for number, variable in enumerate(synthesis.columns):
        loads = generator.normal(size=_FACTORS) * 0.4
        rest = math.sqrt(max(1 - float(loads @ loads), 0.1))
        hidden = factors @ loads + rest * generator.normal(size=count)
        masses = _masses(variable, generator, is_outcome=number == synthesis.outcome_number)
        order = np.argsort(np.argsort(hidden, kind="stable"), kind="stable")
        cells = np.searchsorted(np.cumsum(masses), (order + 0.5) / count).clip(0, len(masses) - 1)
        codes[:, number] = np.where(generator.random(count) < _missing(variable), len(variable.labels) - 1, cells)
    return codes


def simulated_answer(
    document: QueryDocument, codes: Integers, patients: int, generator: np.random.Generator
) -> PublishedAnswer:
    """Return the answer that so many patients like these would give, unsigned."""
    question = document.question
    assert isinstance(question, Marginals)
    groups = question.groups or ((),) * codes.shape[1]
    places = [
        np.array(each, np.int64)[codes[:, number]] if each else codes[:, number] for number, each in enumerate(groups)
    ]
    counts = [
        np.bincount(np.ravel_multi_index([places[number] for number in clique], shape), minlength=math.prod(shape))
        * times
        for clique, shape, times in zip(question.cliques, question.shapes, question.times, strict=True)
    ]
    std = question.noise_multiplier * question.sensitivity
    total = np.concatenate(counts) * (patients / len(codes)) + generator.normal(0, std, question.cells)
    return PublishedAnswer(
        study="forecast",
        query=question.stage,
        sha256=document.digest(),
        round=question.stage,
        hospitals=1,
        noise=QueryNoise(guaranteed=std, present=std, spacing=question.grid().spacing),
        answer=question.answer(NoisedSum(total, std, 0)),
        warning="",
        ledger_entries=question.stage,
        ledger_sha256="0" * 64,
    )


def _missing(variable: Variable) -> float:
    return _ABSENT if variable.presence else _MISSING


def _masses(variable: Variable, generator: np.random.Generator, *, is_outcome: bool) -> NDArray[np.float64]:
    """Return shares of the cells but the one for missing values."""
    if variable.presence:
        return np.ones(1)
    if variable.edges is not None:
        places = np.linspace(-1.0, 1.0, len(variable.edges) + 1)
        centre, width = generator.uniform(-1, 1), generator.uniform(0.15, 0.8)
        masses = np.exp(-(((places - centre) / width) ** 2) / 2) + 1e-3
        return masses / masses.sum()
    usual = [label for label in variable.labels if label not in (OTHER_LABEL, MISSING)]
    ratio = 0.4 if is_outcome else generator.uniform(0.15, 0.8)
    masses = generator.permutation(ratio ** np.arange(len(usual)) + 1e-3)
    return np.append(masses / masses.sum() * (1 - _OTHER), _OTHER)
