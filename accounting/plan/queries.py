"""The queries that a study allows, and the cost of one query: public, and known before any computation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

from accounting.errors import InvalidArgument
from accounting.values import check_choice, check_count, check_instance, check_positive

Bears = Literal["all", "evaluated"]
# Grid steps to the standard deviation of a query's noise. From here on the discrete law, rounding included, is the
# continuous one with a variance 1/12 smaller, up to `LATTICE_ERROR` for each cell.
LEAST_STD = 2.0**20 - 1
MOST_QUERIES = 100_000
MOST_CELLS = 1 << 17


@dataclass(frozen=True)
class EvaluationPlan:
    """Every patient is on one side for ever: trained on, or set aside for questions about released models.

    every  rounds of training between two scheduled questions. The last model is asked about, too. None: none is
    cost   of a scheduled question. None: none is

    Raises InvalidArgument.
    """

    every: int | None = None
    cost: QueryCost | None = None

    def __post_init__(self) -> None:
        if (self.every is None) != (self.cost is None):
            raise InvalidArgument("every", "comes together with what a scheduled evaluation costs")
        if self.every is not None:
            check_count("every", self.every)
        if self.cost is not None and check_instance("cost", QueryCost, self.cost).bears != "evaluated":
            raise InvalidArgument("cost", "of an evaluation is borne by those who are set aside for it")

    def due_by(self, rounds: int) -> int:
        """How many scheduled questions so many rounds of training bring at most, that on the last model included."""
        return 0 if self.every is None else -(-rounds // self.every)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of `asdict`. InvalidArgument: a field is missing, unknown or wrong."""
        try:
            fields: dict[str, Any] = dict(value)
            if fields["cost"] is not None:
                fields["cost"] = QueryCost.from_dict(fields["cost"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise InvalidArgument("evaluation", f"is not an evaluation's plan: {error}") from error


@dataclass(frozen=True)
class QueryPlan:
    """The numbers of all queries together that are fixed before round 1.

    max_queries  the most that are charged over the study
    max_cells    the most numbers in the sum of one
    allowance    the most Σ (Δ/s)² of queries on all patients, which a Bayesian limit against a path carries whole from
                 round 1, together with unscheduled evaluations. None where there is no such limit
    evaluation   who bears questions about released models, and which are scheduled. None: no patient is set aside
    share        of the Σ (Δ/s)² that the classical limit alone would allow: the most that queries on all patients may
                 use together beside a fixed plan of steps, where None allows no question, or instead of an allowance

    Raises InvalidArgument.
    """

    max_queries: int
    max_cells: int
    allowance: float | None = None
    evaluation: EvaluationPlan | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        check_count("max_queries", self.max_queries, minimum=1, maximum=MOST_QUERIES)
        check_count("max_cells", self.max_cells, minimum=1, maximum=MOST_CELLS)
        if self.allowance is not None:
            check_positive("allowance", self.allowance)
        if self.share is not None:
            check_share(self.share)
        if self.evaluation is not None:
            check_instance("evaluation", EvaluationPlan, self.evaluation)

    @property
    def cells(self) -> int:
        """Noised numbers over the whole study, at most."""
        return self.max_queries * self.max_cells

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of `asdict`. InvalidArgument: a field is missing, unknown or wrong."""
        try:
            fields: dict[str, Any] = dict(value)
            if fields["evaluation"] is not None:
                fields["evaluation"] = EvaluationPlan.from_dict(fields["evaluation"])
            return cls(**fields)
        except (KeyError, TypeError) as error:
            raise InvalidArgument("queries", f"is not a plan of queries: {error}") from error


def check_share(value: object) -> float:
    """A share of queries in a budget, above 0 and below 1."""
    share = check_positive("share", value)
    if not share < 1:
        raise InvalidArgument("share", f"must be below 1, or nothing is left for training, not {share!r}")
    return share


@dataclass(frozen=True)
class QueryCost:
    """One noised sum of integers, at sampling rate 1.

    noise_std    standard deviation s of the noise that is sure to be in it, in grid steps
    sensitivity  L2 norm Δ that one patient moves it by at most, in grid steps
    cells        numbers in the sum
    bears        whose loss it is: that of all, or only that of patients who are set aside for evaluation

    Raises InvalidArgument.
    """

    noise_std: float
    sensitivity: float
    cells: int
    bears: Bears = "all"

    def __post_init__(self) -> None:
        for name in ("noise_std", "sensitivity"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))
        if not LEAST_STD <= self.noise_std <= 2.0**40:
            raise InvalidArgument("noise_std", f"must be {LEAST_STD:.0f} to 2^40 grid steps, not {self.noise_std!r}")
        check_count("cells", self.cells, minimum=1, maximum=MOST_CELLS)
        check_choice("bears", self.bears, get_args(Bears))

    @property
    def noise_multiplier(self) -> float:
        """s/Δ, rounded down."""
        return math.nextafter(self.noise_std / self.sensitivity, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`. InvalidArgument: a field is missing, unknown or wrong."""
        try:
            return cls(**value)
        except TypeError as error:
            raise InvalidArgument("query", f"is not a query's cost: {error}") from error
