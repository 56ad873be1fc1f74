"""The certificate's numbers by hospital, from one noised histogram of losses with a block for each.

There is no test that says that a Bayesian number applies: such a test could only fail.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accounting.budget.accounts.cumulative import CumulativeLimit
from accounting.estimation.upper_mean import lower_counts
from study_protocol.documents.phrases import number
from study_protocol.queries.answer import RAW, AnswerTable, NoisedSum
from study_protocol.queries.counting import STANDS_OUT
from study_protocol.queries.kinds.distances import CLIPPED, EDGES, LABELS, TABLE, Distances
from study_protocol.queries.ratios import Quadratic, ratios
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.certificate import CertifiedDistances, CertifiedHospital
from study_protocol.study.privacy import Privacy
from study_protocol.study.queries import PublishedAnswer

# A hospital whose number is surely further from that of all is counted.
DIFFERS = 0.1
ALL_AT_ONE = (
    "All exceptional patients may be at one hospital. A Bayesian number is about a patient who is drawn at random, and "
    "no test can say that it applies to a given one."
)


class _Rounds(NamedTuple):
    """Charged rounds that the losses do not count, and others, not charged, that they may be shares of besides."""

    unmeasured: int
    beyond: int


def _raw_blocks(table: AnswerTable) -> dict[object, dict[object, float]]:
    """Return the raw count of each hospital and bin that is shown."""
    raw, blocks = table.columns.index(RAW), dict[object, dict[object, float]]()
    for row in table.rows:
        if row[1] in LABELS and isinstance(value := row[raw], int | float):
            blocks.setdefault(row[0], {})[row[1]] = float(value)
    return blocks


@dataclass(frozen=True, repr=False)
class DistanceBlocks:
    """An answer to a question of kind distances by hospital. blocks: (hospitals, bins), noised counts."""

    query: int
    round: int
    noise: float
    blocks: NDArray[np.float64]

    @classmethod
    def of(cls, published: PublishedAnswer) -> DistanceBlocks | None:
        """Return the blocks of an answer. None: it has none, or lacks a count, without which no bound holds."""
        table = next((each for each in published.answer.tables if each.name == f"{TABLE}-by-hospital"), None)
        if table is None:
            return None
        blocks = _raw_blocks(table)
        if len(blocks) < published.hospitals or any(set(block) != set(LABELS) for block in blocks.values()):
            return None
        counts = np.array([[block[label] for label in LABELS] for block in blocks.values()])
        return cls(published.query, published.round, published.noise.present, counts)

    @classmethod
    def stated(cls, stated: CertifiedDistances) -> DistanceBlocks:
        """Return the blocks that a certificate states."""
        counts = np.array([hospital.counts for hospital in stated.hospitals])
        return cls(stated.query, stated.round, stated.noise, counts)


def fault_of_distances(settings: AnySettings) -> str | None:
    """Return why hospitals of such a study cannot answer a question of kind distances, or None if they can."""
    privacy = settings.privacy
    if not isinstance(privacy, Privacy) or privacy.bayesian is None or not privacy.estimates_records:
        return "kind distances: the study measures no patient's distance: it has no Bayesian limit for patients"
    if privacy.bayesian.composition != "running" or privacy.accounting_sample is not None:
        return 'kind distances: needs composition = "running" and no accounting_sample: all patients are counted'
    if settings.statistics is not None and settings.statistics.suppress_below:
        # A count that is not shown would be missing where losses are largest.
        return "kind distances: needs statistics.suppress_below = 0: its bounds are made of all noised counts"
    return None


def certified(
    distances: DistanceBlocks,
    account: CumulativeLimit,
    stated: float | None,
    *,
    charged: Sequence[int],
    in_full: int,
    cancelled: int = 0,
) -> CertifiedDistances:
    """Return the numbers of each hospital, the least favourable first, and of all of them together.

    Args:
        account: of the Bayesian limit for patients, after all charges that the certificate counts.
        stated: ε of that limit.
        charged: the rounds that are counted. in_full: how many of them at their worst.
        cancelled: rounds that cost nothing. A hospital may have measured them before.
    """
    # What a patient may have lost that was not measured counts at its worst.
    rounds = _Rounds(in_full + sum(round_number > distances.round for round_number in charged), cancelled)
    spread = distances.noise * math.sqrt(len(distances.blocks))
    pooled = _hospital(distances.blocks.sum(axis=0), spread, account, rounds)
    hospitals = [_hospital(block, distances.noise, account, rounds) for block in distances.blocks]
    fewest = float(distances.blocks.sum(axis=1).min())
    one_at_the_worst = _one_at_the_worst(fewest, account, rounds)
    hospitals.sort(key=lambda hospital: (-hospital.epsilon, hospital.counts))
    return CertifiedDistances(
        query=distances.query,
        round=distances.round,
        noise=distances.noise,
        failure=account.failure,
        pooled=pooled,
        hospitals=hospitals,
        words=_words(hospitals, pooled, stated, distances.noise, one_at_the_worst),
    )


def _hospital(block: NDArray[np.float64], noise: float, account: CumulativeLimit, rounds: _Rounds) -> CertifiedHospital:
    # A quarter for the noise of the sums from below, a quarter for that of the total, half for the estimate.
    quarter = account.failure / 4
    total = float(block.sum()) + noise * math.sqrt(2 * len(EDGES) * math.log(1 / quarter))
    # More patients than there are, all in the last bin: each lowers a betting process, and so raises the bound.
    size = max(3, math.ceil(total))
    whole = np.diff(np.floor(np.cumsum(block)), prepend=0.0)
    counts = lower_counts(whole, noise, quarter, sample_size=size)
    epsilon = account.epsilon_of_shares(
        EDGES, counts, account.failure / 2, unmeasured=rounds.unmeasured, beyond=rounds.beyond
    )
    estimate, estimate_low, estimate_high = _estimated(block, noise, account, rounds)
    share = Distances(kind="distances", noise_multiplier=1.0).block_answer(NoisedSum(block, noise, 0))
    table = next(table for table in share.tables if table.name == CLIPPED)
    row: Mapping[str, object] = dict(zip(table.columns, table.rows[0], strict=True))
    value, low, high = (row[name] for name in ("estimate", "low", "high"))
    return CertifiedHospital(
        counts=block.tolist(),
        epsilon=epsilon,
        estimate=estimate,
        estimate_low=estimate_low,
        estimate_high=estimate_high,
        clipped=value if isinstance(value, float) else None,
        clipped_low=low if isinstance(low, float) else 0.0,
        clipped_high=high if isinstance(high, float) else 1.0,
    )


def _estimated(
    block: NDArray[np.float64], noise: float, account: CumulativeLimit, rounds: _Rounds
) -> tuple[float | None, float, float]:
    """Return ε of these patients and its interval: 95 % of the noise, and every loss at either end of its bin."""
    lower = (0.0, *EDGES[:-1])
    middle = [(below + above) / 2 for below, above in zip(lower, EDGES, strict=True)]

    def read(edges: Sequence[float], statistic: Literal["estimate", "low", "high"], beyond: int = 0) -> float:
        def mean(weights: NDArray[np.float64]) -> float:
            # Var(Σ w·count - r·Σ count) of the noise.
            spread = noise**2 * np.array([[np.sum(weights**2)], [-2 * np.sum(weights)], [float(len(weights))]])
            none, total = np.zeros(1), np.array([block.sum()])
            ratio = ratios(np.array([weights @ block]), total, Quadratic(*spread), Quadratic(none, none, none))
            return float(getattr(ratio, statistic)[0])

        return account.estimate_of_shares(edges, mean, unmeasured=rounds.unmeasured, beyond=beyond)

    low, high = read(lower, "low"), read(EDGES, "high", rounds.beyond)
    is_known = block.sum() > STANDS_OUT * noise * math.sqrt(len(EDGES))
    return min(max(read(middle, "estimate"), low), high) if is_known else None, low, high


def _one_at_the_worst(patients: float, account: CumulativeLimit, rounds: _Rounds) -> float:
    """Return ε of so many patients if one of them has lost the most that can be, and the others none."""
    count = max(1.0, patients)

    def mean(weights: NDArray[np.float64]) -> float:
        return float(weights[1] + (count - 1) * weights[0]) / count

    return account.estimate_of_shares((0.0, 1.0), mean, unmeasured=rounds.unmeasured)


def _differs(hospital: CertifiedHospital, pooled: CertifiedHospital, stated: float | None) -> bool | None:
    """Return whether a hospital's number is surely further than DIFFERS from that of all. None: noise hides it."""
    low, high = hospital.estimate_low, hospital.estimate_high
    pooled_low, pooled_high = pooled.estimate_low, pooled.estimate_high
    if low > (1 + DIFFERS) * pooled_high or high < (1 - DIFFERS) * pooled_low:
        return True
    if stated is not None and low > (1 + DIFFERS) * stated:
        return True
    return False if high <= (1 + DIFFERS) * pooled_low and low >= (1 - DIFFERS) * pooled_high else None


def _words(
    hospitals: Sequence[CertifiedHospital],
    pooled: CertifiedHospital,
    stated: float | None,
    noise: float,
    one_at_the_worst: float,
) -> list[str]:
    differ = [_differs(hospital, pooled, stated) for hospital in hospitals]
    far, hidden, count = differ.count(True), differ.count(None), len(hospitals)
    clipped = [
        f"{hospital.clipped_low:.0%} to {hospital.clipped_high:.0%}"
        for hospital in sorted(hospitals, key=lambda hospital: -hospital.clipped_high)
    ]
    written = "" if stated is None else f" The limit states {number(stated)}."
    far_text = (
        f"At {far} of {count} hospitals the estimate differs by more than {DIFFERS:.0%} from that of all hospitals, "
    )
    return [
        f"Bounds: for a patient of the least favourable hospital alone ε is at most {number(hospitals[0].epsilon)}, of "
        f"all hospitals together {number(pooled.epsilon)}, for any distribution of losses.{written} A hospital with "
        "few patients has a bound near the worst case for this reason alone.",
        "Estimates are of these patients alone and guarantee nothing. Their intervals count the noise and the bins, "
        "and each holds the number in 95 of 100 cases.",
        f"{far_text}or is above the stated number{': it does not speak for their patients' if far else ''}.",
        *_hidden(hidden, count, one_at_the_worst),
        f"Patients clipped in nearly every step, by hospital, in intervals of 95 %: {', '.join(clipped)}.",
        f"Each count has noise of standard deviation {number(noise)}. Patients whose own limit has no room for the "
        "question are not counted.",
        ALL_AT_ONE,
    ]


def _hidden(hidden: int, count: int, one_at_the_worst: float) -> list[str]:
    if not hidden:
        return []
    return [
        f"At {hidden} of {count} hospitals the noise hides whether it does. One patient at the worst case, and no "
        f"other loss, would give the smallest hospital {one_at_the_worst:.2f}: noise that hides one patient hides "
        "such a difference."
    ]
