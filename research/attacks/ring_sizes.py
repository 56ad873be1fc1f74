"""How many neighbours a study of many hospitals needs: `python -m research.attacks.ring_sizes`.

What the masks keep secret holds for every k that the settings take. The choice of k is one of rounds that end: with
more losses in one neighbourhood than it bears, a round opens nothing. The table has the least k for which that
happens in less than one round of a million, whoever of the hospitals are lost, so many of them and at random.
"""

from __future__ import annotations

from dataclasses import dataclass

from scipy.stats import hypergeom

from study_protocol.secure_sum.messages import min_threshold

SIZES = (300, 500, 1000)
COLLUDERS = (0.05, 0.1, 0.2)
LOST = (0.05, 0.1)
RARE = 1e-6


@dataclass(frozen=True)
class Choice:
    """n hospitals, c colluders, `lost` of n fall silent after sharing; k, t, and losses that a neighbourhood bears."""

    hospitals: int
    colluders: int
    lost: int
    neighbours: int
    threshold: int
    borne: int


def failure(hospitals: int, colluders: int, lost: int, neighbours: int) -> float:
    """At most how often a round opens nothing when `lost` of its hospitals, drawn at random, have fallen silent.

    The union over all places of the ring: fewer than t of a neighbourhood of k + 1 are left, or no more than c/2 of
    k/2 that follow each other.
    """
    threshold = min_threshold(neighbours + 1, colluders)
    thin = hypergeom.sf(neighbours + 1 - threshold, hospitals, lost, neighbours + 1)
    half = neighbours // 2
    cut = hypergeom.sf(half - colluders // 2 - 1, hospitals, lost, half)
    return float(hospitals * (thin + cut))


def min_neighbours(hospitals: int, colluders: int, lost: int) -> Choice | None:
    """The least k that fails more rarely than `RARE`; None: none below the complete graph."""
    for k in range(colluders + 2 - colluders % 2, hospitals - 1, 2):
        if failure(hospitals, colluders, lost, k) < RARE:
            threshold = min_threshold(k + 1, colluders)
            return Choice(hospitals, colluders, lost, k, threshold, k + 1 - threshold)
    return None


def rows() -> list[str]:
    """The table of docs/threat-model.md."""
    lines: list[str] = []
    for n in SIZES:
        for share in COLLUDERS:
            c = round(share * n)
            cells = [str(n), f"{c} ({share:.0%})", str(min_threshold(n, c))]
            for part in LOST:
                choice = min_neighbours(n, c, round(part * n))
                cells.append("all" if choice is None else f"{choice.neighbours} / {choice.threshold} / {choice.borne}")
            lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(rows()))
