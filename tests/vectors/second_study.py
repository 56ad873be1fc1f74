"""What the entries of a ledger say happened in a study, and nothing of what it cost."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.vectors.second_epsilon import mp, mpf

Json = dict[str, Any]
# A level, its relation, whether its sampling counts; how many squared counts a neighbour moves in a histogram.
SCHEMES: Mapping[str, tuple[tuple[tuple[str, bool], ...], int]] = {
    "client": ((("client", True),), 1),
    "client-distributed": ((("client", False),), 2),
    "parallel": ((("instance", True),), 2),
    "sequential": ((("instance", True),), 2),
    "joint": ((("instance", True), ("client", False)), 2),
}
CHARGES = {"settled", "charged-in-full"}
# Entries that cost nobody anything.
FREE = {"roster", "operated", "released"}


class Wrong(ValueError):
    """The ledger or the statement is not what it should be."""


def require(holds: bool, reason: str) -> None:
    """Raises Wrong."""
    if not holds:
        raise Wrong(reason)


@dataclass(frozen=True)
class Query:
    noise_std: float
    sensitivity: float
    bears: str

    @property
    def precision(self) -> mpf:
        """Δ²/s²."""
        return (mpf(self.sensitivity) / mpf(self.noise_std)) ** 2


@dataclass
class Study:
    """What the entries say happened. `rounds`: of each charged round its report, and whether it published."""

    plan: Json
    rounds: list[tuple[Any, bool]] = field(default_factory=list)
    # Of each charged round, how many rounds of training had begun with it.
    places: list[int] = field(default_factory=list)
    begun: int = 0
    published: int = 0
    # Histograms of cancelled rounds, after how many charged ones.
    lost: list[int] = field(default_factory=list)
    queries: Counter[Query] = field(default_factory=Counter)
    pending: tuple[int, Query | None] | None = None
    last: int = 0
    finished: bool = False

    def publishes(self, number: int) -> bool:
        release = self.plan.get("release")
        return release is not None and number % release["every"] == 0

    def apply(self, kind: str, number: int, body: Json) -> None:
        """Do what an entry after the first one says. Raises Wrong: it cannot have happened."""
        if kind in FREE:
            return
        require(kind in CHARGES | {"reserved", "asked", "cancelled", "finished"}, f"an unknown kind {kind}")
        require(not self.finished, "the study had ended")
        if kind == "finished":
            require(self.pending is None, "the study ends in a round")
            self.finished = True
            if body["report"] is not None:
                require(len(body["report"]) == len(self.rounds), "not one report for each charged round")
                self.rounds = [(told, one[1]) for told, one in zip(body["report"], self.rounds, strict=True)]
            return
        if kind in ("reserved", "asked"):
            require(self.pending is None and number > self.last, "a round begins out of order")
            cost = body["cost"] if kind == "asked" else None
            query = None if cost is None else Query(cost["noise_std"], cost["sensitivity"], cost["bears"])
            self.pending, self.last = (number, query), number
            self.begun += query is None
            return
        require(self.pending is not None and self.pending[0] == number, "a round ends that is not under way")
        query, self.pending = self.pending[1], None
        if kind == "cancelled":
            if query is None and self.publishes(number) and SCHEMES[self.plan["scheme"]][0][-1][0] == "instance":
                # The hospital has drawn it, and may report it later.
                self.published += 1
                self.lost.append(len(self.rounds))
        elif query is not None:
            self.queries[query] += 1
        else:
            self.rounds.append((body.get("report"), self.publishes(number)))
            self.places.append(self.begun)
            self.published += self.publishes(number)

    def precision(self, *bears: str) -> mpf:
        return mp.fsum(count * query.precision for query, count in self.queries.items() if query.bears in bears)

    def ahead(self) -> Study:
        """With the round under way, or one more, charged at its most."""
        number, query = self.pending or (self.last + 1, None)
        after = copy.deepcopy(self)
        if query is not None:
            after.queries[query] += 1
        elif self.plan["scheme"] != "statistics":
            after.rounds.append((None, self.publishes(number)))
            after.places.append(self.begun + (self.pending is None))
            after.published += self.publishes(number)
        return after
