"""The ways of adding noise: whom each protects, who adds the noise, what it may count on, what a round reports.

The one place that knows a scheme by its name. Accounts, settings, hospitals and the coordinator ask for a property. A
new scheme is a row of `SCHEMES` (Triastcyn & Faltings 2019, section V; Triastcyn 2020, section 6.4).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from accounting.units import Level, Relation

PapersScheme = Literal["client", "sequential", "parallel", "joint"]
"""The papers' words, which settings use."""
CentralNoiseBy = Literal["coordinator", "distributed"]
"""Whose the central noise is: what settings tell the rows of one of the papers' words apart by."""
TrainingScheme = Literal[PapersScheme, "client-distributed"]
SchemeName = Literal[TrainingScheme, "statistics"]
Composition = Literal["holder", "running"]


class Noise(StrEnum):
    """The party that adds the noise that the accounts count on."""

    COORDINATOR = "coordinator"
    """Once, on the sum: an update leaves its hospital without any."""
    EACH_CLIENT = "each client"
    """Every client enough for itself: its update could be shown alone."""
    CLIENTS_TOGETHER = "clients together"
    """Every client one noise, which add up: only a sum under masks has all of it."""
    CLIENTS_IN_SHARES = "clients in shares"
    """One noise for the whole sum, of which every client adds its share under masks; the coordinator adds none."""
    QUERIES_ALONE = "queries alone"
    """Nothing is trained. In a query every client adds its share under masks, and the whole noise without them."""


class Credit(StrEnum):
    """The secret Poisson sampling that a level may count on."""

    CLIENTS = "clients"
    RECORDS = "records"
    NONE = "none"


class Tells(StrEnum):
    """The content of a round's report on one level."""

    HISTOGRAM = "a histogram of the clients' distances"
    CUMULATIVE = "the largest of the clients' cumulative log-moments"
    NOTHING = "nothing: every cost is known beforehand"


@dataclass(frozen=True)
class Protection:
    """The promise to one level.

    compositions  how its Bayesian costs may be composed over rounds. Running sums need the same sample in every round,
                  and clients are sampled anew
    """

    level: Level
    relation: Relation
    credit: Credit
    tells: Tells
    compositions: tuple[Composition, ...]


@dataclass(frozen=True)
class Scheme:
    """One way of adding noise.

    protects               the levels. The noise multiplier is of the first one's clip norm, a second one has its own
    moved_counts           what one neighbour moves in a histogram that is published: squared L2 norm of the change
    sums_costs_as_in_papers  beside the sound charge, the sum of the clients' costs at q = B_i/N is reported
    papers                 what the papers and a study's settings call it, where that is not its id
    central_noise          by what settings tell it from the others of this name. None: there are no others
    """

    id: SchemeName
    title: str
    noise: Noise
    protects: tuple[Protection, ...]
    moved_counts: int
    sums_costs_as_in_papers: bool = False
    papers: PapersScheme | None = None
    central_noise: CentralNoiseBy | None = None

    @property
    def display_name(self) -> str:
        """For messages: the id with the plain title."""
        return f"{self.id} ({self.title})"

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels that are protected, the one whose clip norm the noise multiplies first."""
        return tuple(protection.level for protection in self.protects)

    def protection(self, level: Level) -> Protection | None:
        """Return the promise to this level, or None where there is none."""
        return next((protection for protection in self.protects if protection.level == level), None)

    @property
    def compositions(self) -> tuple[Composition, ...]:
        """Those that at least one level may have. A level that may not have a study's composes by `holder`."""
        return tuple(dict.fromkeys(name for protection in self.protects for name in protection.compositions))

    @property
    def trains(self) -> bool:
        """Whether rounds of training are run. Else a study has queries alone."""
        return self.noise is not Noise.QUERIES_ALONE

    @property
    def central(self) -> bool:
        """Whether updates leave their hospital exact, and the coordinator adds the noise to their sum."""
        return self.noise is Noise.COORDINATOR

    @property
    def clips_updates(self) -> bool:
        """Whether whole updates are clipped, and a round is one noised step. Else every record's gradient is."""
        return self.central or self.divides_noise

    @property
    def divides_noise(self) -> bool:
        """Whether the noise multiplier is of all the noise, which clients divide. Else of what one adder adds."""
        return self.noise is Noise.CLIENTS_IN_SHARES

    @property
    def pooled(self) -> bool:
        """Whether the noise of several clients counts together.

        Then updates must be masked, for a single one has too little noise, and a round has one noisy step, because in
        later ones a client's records are already in its own weights, under its own noise alone.
        """
        return self.noise in (Noise.CLIENTS_TOGETHER, Noise.CLIENTS_IN_SHARES)

    @property
    def bounds_clients_too(self) -> bool:
        """Whether a client's whole sum is clipped before its noise, beside every record's gradient."""
        return not self.clips_updates and Level.CLIENT in self.levels

    @property
    def counts_clients(self) -> bool:
        """Whether a published histogram counts clients and sums their noise. Else each hospital's own records."""
        return Level.CLIENT in self.levels

    @property
    def histogram_sensitivity(self) -> float:
        """L2 norm of what one neighbour changes in the counts of a published histogram, rounded up."""
        exact = math.isqrt(self.moved_counts) ** 2 == self.moved_counts
        return float(math.isqrt(self.moved_counts)) if exact else math.nextafter(math.sqrt(self.moved_counts), math.inf)


_CLIENTS = Protection(Level.CLIENT, Relation.ADD_REMOVE, Credit.CLIENTS, Tells.HISTOGRAM, ("holder",))
_RECORDS = Protection(Level.INSTANCE, Relation.ADD_REMOVE, Credit.RECORDS, Tells.CUMULATIVE, ("holder", "running"))
# Who takes part is seen, and a client that takes part always adds its noise: no sampling, and its signal alone is 0.
_SIGNALS = Protection(Level.CLIENT, Relation.ZERO_OUT, Credit.NONE, Tells.HISTOGRAM, ("holder",))
# Every patient whom a query is about is in its sum.
_QUERIED = Protection(Level.INSTANCE, Relation.ADD_REMOVE, Credit.NONE, Tells.NOTHING, ())

# A client adds one count. Elsewhere a count leaves one bin for another: a record of a hospital's accounting sample.
# Where clients add the noise the hospital itself, whether its signal is zeroed out or a record changes it.
SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        scheme.id: scheme
        for scheme in (
            Scheme("client", "central noise", Noise.COORDINATOR, (_CLIENTS,), 1, central_noise="coordinator"),
            # A hospital that is removed takes its share with it, as in joint.
            Scheme(
                "client-distributed",
                "central noise in shares",
                Noise.CLIENTS_IN_SHARES,
                (_SIGNALS,),
                2,
                papers="client",
                central_noise="distributed",
            ),
            Scheme("parallel", "local noise", Noise.EACH_CLIENT, (_RECORDS,), 2),
            Scheme("sequential", "distributed noise", Noise.CLIENTS_TOGETHER, (_RECORDS,), 2, True),
            Scheme("joint", "both levels", Noise.CLIENTS_TOGETHER, (_RECORDS, _SIGNALS), 2),
            Scheme("statistics", "queries alone", Noise.QUERIES_ALONE, (_QUERIED,), 0),
        )
    }
)
TRAINING_SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {name: scheme for name, scheme in SCHEMES.items() if scheme.trains}
)


def schemes_called(name: str) -> Mapping[CentralNoiseBy | None, Scheme]:
    """The schemes that train and that the papers and a study's settings call so, by what tells them apart."""
    return {
        scheme.central_noise: scheme for scheme in TRAINING_SCHEMES.values() if (scheme.papers or scheme.id) == name
    }
