"""Every study that is recorded: all combinations of choices in names of their own, which no renaming touches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields

NONE = "-"

# In the order of `Combination`'s fields. `clients`: scheme joint with a Bayesian limit for clients alone.
AXES: dict[str, tuple[str, ...]] = {
    "scheme": ("client", "parallel", "sequential", "joint", "client-distributed"),
    "masking": ("none", "costs", "updates"),
    "disclosure": ("plain", "noised", "final"),
    "limits": ("classical", "bayesian", "clients"),
    "estimator": ("student-t", "betting", "band", "bernstein"),
    "composition": ("holder", "running"),
    "adversary": ("path", "adaptive"),
    "conversion": ("improved", "chernoff"),
    "accounting_sample": ("none", "members", "held-out"),
}
_OF_ANY_STUDY = 4


@dataclass(frozen=True)
class Combination:
    """One choice on every axis; NONE on those that say how a Bayesian limit is kept, where there is none."""

    scheme: str
    masking: str
    disclosure: str
    limits: str
    estimator: str
    composition: str
    adversary: str
    conversion: str
    accounting_sample: str

    def __str__(self) -> str:
        return " ".join(astuple(self))

    @classmethod
    def parse(cls, text: str) -> Combination:
        """Inverse of `str`."""
        return cls(*text.split(" "))

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """Every two of its choices, as `axis=choice`."""
        chosen = [f"{field.name}={choice}" for field, choice in zip(fields(self), astuple(self), strict=True)]
        return set(itertools.combinations(chosen, 2))


def product() -> list[Combination]:
    """All of them, whether or not a study can be made of them."""
    study = list(AXES.values())[:_OF_ANY_STUDY]
    how = list(AXES.values())[_OF_ANY_STUDY:]
    made: list[Combination] = []
    for chosen in itertools.product(*study):
        if chosen[3] == "clients" and chosen[0] != "joint":
            continue
        rest = [(NONE,) * len(how)] if chosen[3] == "classical" else itertools.product(*how)
        made += [Combination(*chosen, *last) for last in rest]
    return made


def covering(all_of_them: Sequence[Combination]) -> list[Combination]:
    """A few in which every pair of choices occurs that occurs at all; greedy, the same at every call."""
    missing = set[tuple[str, str]]().union(*(one.pairs for one in all_of_them))
    chosen: list[Combination] = []
    while missing:
        # The first of those that cover most.
        best = max(all_of_them, key=lambda one: len(one.pairs & missing))
        chosen.append(best)
        missing -= best.pairs
    return chosen
