"""Several sets of synthetic records, drawn around the noised answers, and intervals from an analysis of each.

What is not known of the patients' population has two parts: the noise of the answers, and that other patients could
have come. A set is made from the answers with both parts drawn once more. So estimates from sets differ from one
another as much as an estimate from the answers differs from the population (as in Räisä, Jälkö, Kaski, Honkela,
"Noise-aware statistical inference with differentially private synthetic data", AISTATS 2023, with a normal posterior of
the answers in place of a Markov chain). Estimates are not shrunk, because that would draw them all to one side.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats  # pyright: ignore[reportMissingTypeStubs]

from study_protocol.study.synthesis import Synthesis
from synthesis.chain import Chain
from synthesis.model.arithmetic import Floats, Integers, RandomWords, total_of
from synthesis.model.make import make_records
from synthesis.model.noised import Noised, NoisedTable
from synthesis.released import noised_of

# Records that patients are drawn from again. More of them change no variance.
_DRAWN_FROM = 20_000
# Patients that are drawn. Of more, the deviation of so many is scaled.
_MOST_DRAWN = 1_000_000


@dataclass(frozen=True)
class Interval:
    """Of a population's quantity, or of several. All arrays have the shape of one estimate.

    freedom: degrees of the t distribution, the number of sets less 1.
    """

    estimate: Floats
    standard_error: Floats
    low: Floats
    high: Floats
    freedom: int


def combined(estimates: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return what the estimates of all sets say together.

    The variance is (1 + 1/m) times the variance between sets, as for synthetic records that are many (Raghunathan,
    Reiter, Rubin, "Multiple imputation for statistical disclosure limitation", 2003, whose third term is the drawing
    error within a set. It is left out, which can only widen the interval). No standard errors of single sets are used.

    Args:
        estimates: one of each set, shape (sets,) or (sets, …): a proportion, a vector of coefficients.
        confidence: of the interval, between 0 and 1.

    Raises:
        ValueError: fewer than two sets, estimates of different shapes, one that is no finite number or too large, or no
            confidence between 0 and 1.
    """
    try:
        values = np.asarray(estimates, np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("estimates are real numbers, as many from each set") from error
    if values.ndim == 0 or len(values) < 2:
        raise ValueError("an interval needs the estimates of at least two sets")
    if not np.isfinite(values).all():
        raise ValueError("the estimate of a set is not a finite number")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence lies between 0 and 1, not at {confidence:g}")
    count = len(values)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = values.var(axis=0, ddof=1)
    if not np.isfinite(spread).all():
        raise ValueError("the estimates of sets are too large: use another unit")
    mean, error = values.mean(axis=0), np.sqrt((1 + 1 / count) * spread)
    reach = float(stats.t.ppf((1 + confidence) / 2, count - 1)) * error  # pyright: ignore[reportUnknownMemberType]
    return Interval(mean, error, mean - reach, mean + reach, count - 1)


def sets_of(synthesis: Synthesis, chain: Chain, numbers: Iterable[int]) -> Iterator[Integers]:
    """Yield the records of each set as cells of each column, shape (rows, columns).

    The same answers, seed and number give the same records, however many sets there are.

    Args:
        synthesis: the section of the study's settings.
        chain: of its answers, complete.
        numbers: of the sets, from 1.

    Raises:
        ValueError: the chain is not complete, or an answer does not have its question's tables.
    """
    noised = replace(noised_of(synthesis, chain), shrinks=False)
    records = make_records(noised, min(synthesis.rows, _DRAWN_FROM), synthesis.seed)
    for number in numbers:
        words = RandomWords(synthesis.seed, number)
        seed = int(words.words(1)[0] >> np.uint64(1))
        yield make_records(drawn_again(noised, records, words), synthesis.rows, seed)


def drawn_again(noised: Noised, records: Integers, words: RandomWords) -> Noised:
    """Return the tables with other patients and other noise, each as likely as their own.

    Args:
        noised: the answers.
        records: made from them, from which patients are drawn.
        words: the source of chance.
    """
    totals = np.array([total_of(table.counts) for table in noised.columns.values()])
    patients = max(round(total_of(totals) / len(totals)), 1)
    draws = min(patients, _MOST_DRAWN)
    record_numbers = np.minimum((words.uniform(draws) * len(records)).astype(np.int64), len(records) - 1)
    # How often each record was drawn, less how often one expects it.
    surplus = (np.bincount(record_numbers, minlength=len(records)) - draws / len(records)) * np.sqrt(patients / draws)
    grouped = np.stack([noised.groups_of(column)[cells] for column, cells in enumerate(records.T)], axis=1)

    def redraw(table: NoisedTable, columns: tuple[int, ...], rows: Integers) -> NoisedTable:
        shape = table.counts.shape
        cells = np.ravel_multi_index([rows[:, column] for column in (*columns, noised.outcome)], shape)
        sampling_error = np.bincount(cells, surplus, table.counts.size).reshape(shape)
        noise = words.normal(table.counts.size).reshape(shape) * table.std
        return NoisedTable(table.counts + sampling_error + noise, table.std)

    return replace(
        noised,
        columns={column: redraw(table, (column,), records) for column, table in noised.columns.items()},
        pairs={pair: redraw(table, pair, grouped) for pair, table in noised.pairs.items()},
        edges={pair: redraw(table, pair, records) for pair, table in noised.edges.items()},
    )
