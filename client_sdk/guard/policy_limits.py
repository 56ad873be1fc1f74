"""The sections of the site policy with a hospital's own limits: of a data set, and of each patient."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from client_sdk.guard.charges import OwnLimit
from client_sdk.guard.limit_terms import LedgerTerms, LimitRule, WholePlan, agreed
from study_protocol.study.limits import LevelName
from study_protocol.wire.values import Positive, Probability

_SMALLEST = math.nextafter(0.0, 1.0)


class PolicySection(BaseModel):
    """A section of the site policy."""

    # Without inputs: patients' identifiers may be among them.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class LimitSection(PolicySection):
    """The hospital's own classical limit at one level. `order` is chosen from epsilon and delta if left out."""

    epsilon: Positive = Field(description="ε is never more")
    delta: Probability = Field(description="δ is never more: below 1 / patients")
    order: Positive | None = Field(default=None, description="order λ that keeps it. Left out: 2 ln(1/δ) / ε")

    def fixed_order(self) -> float:
        """The one Rényi moment order at which the limit is kept.

        Left out, the best where Gaussian noise without sampling reaches (epsilon, delta): 2 ln(1/δ) / ε.
        """
        return 2 * math.log(1 / self.delta) / self.epsilon if self.order is None else self.order

    def at(self, level: LevelName, terms: LedgerTerms, plans: Iterable[WholePlan] = ()) -> OwnLimit:
        """The limit of what is charged round by round, with the order at which it is enforced.

        plans  studies that were admitted whole. A policy that was lowered since leaves less beside them than its share
        """
        # Of the smallest float a part is 0, which is no limit.
        epsilon, delta = (max(terms.rest * value, _SMALLEST) for value in (self.epsilon, self.delta))
        order = self.model_copy(update={"epsilon": epsilon, "delta": delta}).fixed_order()
        level_plans = [plan for plan in plans if plan.level == level]
        epsilon = min(epsilon, self.epsilon - math.fsum(plan.epsilon for plan in level_plans))
        delta = min(delta, self.delta - math.fsum(plan.delta for plan in level_plans))
        return OwnLimit(level, max(epsilon, _SMALLEST), max(delta, _SMALLEST), order, terms.rule)


class Limits(PolicySection):
    """The hospital's own limits. None: no limit at this level."""

    rule: LimitRule | None = Field(
        default=None,
        description="renyi credits sampling. gaussian gives 11 to 27 % more rounds without it. "
        "Fixed with the first study. Left out: the ledger's, renyi in a new one",
    )
    whole_plans: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        default=None,
        description="share set aside for studies with enforcement fixed-plan, which are admitted whole. Fixed with the "
        "first study. Left out: the ledger's, 0 in a new one",
    )
    instance: LimitSection | None = Field(default=None, description="of each patient, not in scheme client")
    client: LimitSection | None = Field(default=None, description="of this hospital as a whole, in scheme client only")

    @model_validator(mode="after")
    def _fits_rule(self) -> Self:
        if self.rule == "gaussian" and any(section.order is not None for section in self.by_level().values()):
            raise ValueError('order: belongs to rule = "renyi". Remove one of the two')
        return self

    def terms(self, ledger_terms: LedgerTerms, *, is_new: bool) -> LedgerTerms:
        """Return the terms of a ledger under these limits. Raises ConfigurationError as `agreed`."""
        return agreed(ledger_terms, self.rule, self.whole_plans, is_new=is_new)

    def by_level(self) -> dict[LevelName, LimitSection]:
        """Those that are set."""
        sections: dict[LevelName, LimitSection | None] = {"instance": self.instance, "client": self.client}
        return {level: section for level, section in sections.items() if section is not None}


class IndividualLimit(LimitSection):
    """The loss that each patient may have over all studies on the same records: (epsilon, delta), by one sum for each
    patient.
    """

    rule: LimitRule | None = Field(
        default=None,
        description="renyi credits sampling, gaussian does not. Fixed with the first round. Left out: the ledger's, "
        "renyi in a new one",
    )
    every_norm: bool = Field(
        default=False,
        description="compute all norms in every step, not only of those drawn: slower, charges less",
    )

    @model_validator(mode="after")
    def _fits_rule(self) -> Self:
        if self.rule == "gaussian" and self.order is not None:
            raise ValueError('order: belongs to rule = "renyi". Remove one of the two')
        if self.rule == "gaussian" and self.every_norm:
            raise ValueError('every_norm: changes no charge under rule = "gaussian". Remove one of the two')
        return self
