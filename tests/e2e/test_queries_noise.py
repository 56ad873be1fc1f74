"""The noise that is really in whole masked queries, in one process: with nobody lost, and with as many as may be."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from client_sdk.study.answers import noise_share
from server.domain.queries import noise_of, shares_of
from study_protocol.randomness.source import Purpose, SeededRandomness
from study_protocol.secure_sum.parameters import ANSWER
from study_protocol.secure_sum.vectors import decode_signed, encode
from study_protocol.study.queries import QueryDocument
from tests.factories.masked_memory import MaskedHospitals
from tests.factories.settings import statistics_settings

HOSPITALS, REPEATS = 6, 12
# Two of six may be lost: four survivors, of whom one may collude.
NAMES = [f"h{i}" for i in range(HOSPITALS)]
EDGES = [float(edge) for edge in range(998)]
ASKED = QueryDocument.model_validate(
    {"question": {"kind": "table", "noise_multiplier": 6.0, "variables": [{"column": "x", "edges": EDGES}]}}
)


def noise_in_rounds(lost: int, factor: float = 1.0) -> np.ndarray:
    """(rounds, cells): opened sums without their exact part, on the scale of one patient."""
    settings = statistics_settings(masked=True, max_cells=1000)
    hospitals, randomness = MaskedHospitals(settings, {}, NAMES), SeededRandomness(7, allow_insecure=True)
    question = ASKED.question
    grid, exact = question.grid(), question.total({"x": np.full(50, 3.5)}, question.grid().spacing)
    found = list[np.ndarray]()
    for round in range(1, REPEATS + 1):

        def words(name: str, vectors: tuple, round: int = round) -> dict:  # type: ignore[type-arg]
            (spec,), share = vectors, shares_of(settings)
            noise = noise_share(grid, share, exact.size, randomness.of(Purpose.QUERY, party=name, round_number=round))
            part = (exact + np.round(noise * factor)).astype(np.float64)
            return {
                spec.name: encode(spec, part, randomness.of(Purpose.THRESHOLDS, party=name, round_number=round).read)
            }

        gone = NAMES[:lost] if round % 2 else NAMES[HOSPITALS - lost :]
        _, opened = hospitals.summed(round, words, asked=ASKED, lost=gone)[ANSWER]
        steps = decode_signed(opened[: question.cells], scale_bits=0) - (HOSPITALS - lost) * exact
        found.append(steps * grid.spacing)
    return np.array(found)


def interval(std: float, count: int) -> tuple[float, float]:
    """Where the mean square of so many independent normal values lies, but once in a million."""
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], count) / count * std**2
    return float(low), float(high)


@pytest.mark.parametrize("lost", [0, 2])
def test_the_noise_is_what_the_answer_states_and_never_less_than_what_is_charged(lost: int) -> None:
    """12,000 values: chi-square bounds with a false alarm of 1e-6; the randomness is seeded."""
    noise = noise_in_rounds(lost)
    stated = noise_of(ASKED, statistics_settings(masked=True), HOSPITALS - lost)
    assert stated.present == pytest.approx(6.0 * np.sqrt((HOSPITALS - lost) / 3), rel=1e-6)
    low, high = interval(stated.present, noise.size)
    assert low <= float(np.mean(noise**2)) <= high
    # With one colluder's share taken away, the rest is at least what is charged.
    honest = (HOSPITALS - lost - 1) / (HOSPITALS - lost)
    assert float(np.mean(noise**2)) * honest >= interval(stated.guaranteed, noise.size)[0]
    # Drawn anew for every query and cell: no correlation between rounds beyond chance, 1e-6 for each pair.
    between = np.corrcoef(noise)[np.triu_indices(len(noise), 1)]
    assert float(np.abs(between).max()) < stats.norm.ppf(1 - 5e-7) / np.sqrt(noise.shape[1])


def test_a_share_that_is_a_tenth_too_small_is_seen() -> None:
    low, _ = interval(noise_of(ASKED, statistics_settings(masked=True), HOSPITALS).present, REPEATS * len(EDGES))
    assert float(np.mean(noise_in_rounds(0, 0.9) ** 2)) < low
