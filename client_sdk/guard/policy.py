"""The site policy: what this hospital allows, for any study and coordinator.

The policy is a file that the hospital owns. It is checked before anything else.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator, model_validator

from client_sdk.errors import ConfigurationError
from client_sdk.guard.charges import OwnLimit
from client_sdk.guard.exclusion import ExclusionEntry, ExclusionList, inline_identity, read_exclusion_file
from client_sdk.guard.limit_terms import LedgerTerms, LimitRule, WholePlan, agreed
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.bounds import LARGEST_DELTA, LARGEST_EPSILON, MIN_NOISE_MULTIPLIER
from study_protocol.study.limits import LevelName
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.values import Name, Positive, Probability, Sha256
from study_protocol.wire.written import Unreadable, read_toml
from study_protocol.wire.wrong_entries import wrong_entries

POLICY_FILE = "policy.toml"
_SMALLEST = math.nextafter(0.0, 1.0)
Set = Annotated[frozenset[Name], Field(min_length=1)]


@dataclass(frozen=True)
class Floors:
    """The minimum that this hospital demands of any session of any study.

    allow_three admits sessions of three clients, which leave two honest parties and bear no drop-out.
    """

    colluders: int
    min_survivors: int
    allow_three: bool


class _Section(BaseModel):
    # Without inputs: patients' identifiers may be among them.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class LimitSection(_Section):
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


class Limits(_Section):
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


class QueryRules(_Section):
    """The questions that this hospital answers, and the columns that may be read.

    Every rule about a question is over its text, never over the records.
    """

    queries: Literal["ask", "allow", "refuse"] = Field(
        default="ask",
        description="ask: a person here approves each (wardround query approve). allow: those within the other rules",
    )
    by_hospital: Literal["ask", "allow", "refuse"] = Field(
        default="ask",
        description="questions whose answers show this hospital's numbers by themselves. ask: a person here approves "
        "each. allow: as `queries` says",
    )
    max_sessions_per_approval: Annotated[int, Field(ge=1)] = Field(
        default=2,
        description="ask: an approved question may be answered in so many sums, each charged, if earlier ones failed. "
        "Then a person is asked again",
    )
    allowed_columns: frozenset[str] | None = Field(
        default=None,
        description="columns that questions, training and evaluation may read. Left out: any but the denied ones",
    )
    denied_columns: frozenset[str] = Field(
        default=frozenset(),
        description="columns that they may not read. Each has to be there",
    )
    least_noise_multiplier: Positive = Field(
        default=MIN_NOISE_MULTIPLIER, description="least noise of a question, over the largest change by one patient"
    )
    most_cells: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="the most numbers of one question. Left out: as the study allows"
    )

    def allows(self, *, by_hospital: bool) -> bool:
        """Return whether a question within the other rules needs no approval of a person."""
        return self.queries == "allow" and (self.by_hospital == "allow" or not by_hospital)


class ApprovalRule(_Section):
    """The people who have to agree to a question, a study's terms, a roster and a changed site policy."""

    people: Annotated[int, Field(ge=1, le=10)] = Field(
        default=1, description="so many different people must agree to the very same digest before it takes effect"
    )
    distinct_accounts: bool = Field(
        default=True,
        description="with people above 1: they must also have different accounts of the operating system",
    )
    needs_reason: bool = Field(default=False, description="each of them must give a reason (--reason)")

    def stricter(self, rule: ApprovalRule) -> ApprovalRule:
        """Return the rule that asks for all that both ask for."""
        # Alone, a person has no second account.
        distinct = any(each.distinct_accounts for each in (self, rule) if each.people > 1)
        return ApprovalRule(
            people=max(self.people, rule.people),
            distinct_accounts=distinct,
            needs_reason=self.needs_reason or rule.needs_reason,
        )


class SitePolicy(_Section):
    """The rules of this hospital. An entry that is left out has the strict value."""

    studies: Set | None = Field(default=None, description="studies that it may take part in. Left out: any joined here")
    datasets: Set | None = Field(
        default=None,
        description="data sets that may be used, as named by `wardround join --dataset NAME`. Left out: any",
    )
    excluded_patients: tuple[str, ...] = Field(
        default=(),
        repr=False,
        description="patients left out of every training, evaluation and answer. For longer lists: "
        "excluded_patients_file",
    )
    least_noise_multiplier: Positive = Field(
        default=MIN_NOISE_MULTIPLIER,
        description="least noise of every step, over the largest change by one patient (or hospital)",
    )
    largest_epsilon: Positive = Field(
        default=LARGEST_EPSILON, description="the most of the study's classical limits. 20 says next to nothing"
    )
    largest_delta: Probability = Field(
        default=LARGEST_DELTA, description="the same of delta. Below 1 / patients is sensible"
    )
    backbone_programs: frozenset[Sha256] = Field(
        default=frozenset(),
        description="SHA-256 of ONNX programs that studies may run on the records",
    )
    limits: Limits = Field(
        default=Limits(), description="own budget of one data set, over all studies that use it, kept here"
    )
    individual: IndividualLimit | None = Field(
        default=None,
        description="each patient's own limit, over all studies on one data set. It cannot be changed later",
    )
    changed_records: Literal["stop", "accept"] = Field(
        default="stop",
        description="records that differ from those that the study used before. accept: without asking",
    )
    needs_masking: bool = Field(default=False, description="take part only where updates are summed under masks")
    least_colluders: Annotated[int, Field(ge=1)] = Field(
        default=1,
        description="a secure sum must withstand the coordinator and this many hospitals together",
    )
    least_survivors: Annotated[int, Field(ge=3)] = Field(
        default=4, description="no sum of fewer hospitals is opened. Left out beside allow_three: 3"
    )
    allow_three: bool = Field(default=False, description="sums of three hospitals, of which only two need be honest")
    tells_lacking_columns: bool = Field(
        default=False,
        description="tell a study's members and readers which columns these records lack, of those that it lets a site "
        "lack (site-may-lack)",
    )
    plain_disclosure: bool = Field(
        default=False,
        description="allow log-moments (Bayesian costs) without noise. Classical guarantees do not cover them",
    )
    unnoised_updates: bool = Field(
        default=False,
        description="allow scheme client with the coordinator's noise. It sees updates without noise, or under masks "
        "their sum",
    )
    statistics: QueryRules = Field(
        default=QueryRules(),
        description="questions about the patients, and the person or rule that decides",
    )
    min_witnesses: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=0, description="so many pinned members and auditors must have signed lately"
    )
    witness_window: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=10, description="rounds for which a signature counts, and that may begin before the first"
    )
    unpinned_roster: Literal["refused", "unmasked", "laboratory"] = Field(
        default="unmasked",
        description="studies without a compared and pinned roster. refused: none. unmasked: those without masks. "
        "laboratory: any, for tests",
    )
    approval: ApprovalRule = Field(
        default=ApprovalRule(), description="people who decide here, and who are listed by `wardround decision list`"
    )

    # Entries of a file, which are the last ones of `excluded_patients`.
    _listed: tuple[ExclusionEntry, ...] = PrivateAttr(default=())

    @field_validator("excluded_patients", mode="before")
    @classmethod
    def _identities(cls, value: Any) -> Any:
        listed = isinstance(value, list | tuple | set | frozenset)
        return [inline_identity(*numbered) for numbered in enumerate(cast("list[Any]", value), 1)] if listed else value

    @property
    def exclusions(self) -> ExclusionList:
        """Whom `excluded_patients` and the file beside the policy leave out, each with its place there."""
        inline = self.excluded_patients[: max(0, len(self.excluded_patients) - len(self._listed))]
        entries = (
            ExclusionEntry("excluded_patients", place, identity, "entries")
            for place, identity in enumerate(inline, start=1)
        )
        return ExclusionList((*entries, *self._listed))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The policy in a TOML file. `excluded_patients_file` names a file with one identifier a line, beside it.

        Raises:
            ConfigurationError: unreadable, not TOML, an unknown or wrong entry (named, never with its value).
        """
        try:
            values = read_toml(_text(path, f"the site policy {path}"))
        except Unreadable as error:
            raise ConfigurationError(f"the site policy {path} is not valid TOML: {error}") from None
        excluded = values.pop("excluded_patients_file", None)
        try:
            policy = cls.model_validate(values)
        except ValidationError as error:
            # Without its cause, which quotes values: patients' identifiers may be among them.
            wrong = "; ".join(wrong_entries(error, _AsWritten))
            raise ConfigurationError(f"the site policy {path}: {wrong}") from None
        if excluded is None:
            return policy
        if not isinstance(excluded, str):
            raise ConfigurationError(f"the site policy {path}: excluded_patients_file: must be the name of a file")
        listed = path.parent / excluded
        entries = read_exclusion_file(listed, f"the list {listed} that excluded_patients_file names in the site policy")
        identities = (*policy.excluded_patients, *(entry.identity for entry in entries))
        combined = policy.model_copy(update={"excluded_patients": identities})
        combined._listed = entries
        return combined

    @classmethod
    def in_force(cls, directory: Path) -> Self:
        """Return the policy in a hospital's directory, or the strict one without a file. Raises as `read`."""
        path = directory / POLICY_FILE
        return cls.read(path) if path.exists() else cls()

    def digest(self) -> str:
        """Return SHA-256 (hex) over the written entries with all excluded patients, without comments and their order.

        An entry with its default counts as written: some others depend on what is written.
        """
        return hashlib.sha256(canonical_json(_sorted(self.model_dump(mode="json", exclude_unset=True)))).hexdigest()

    @property
    def in_words(self) -> str:
        """Return what a refusal calls it: there may be no file."""
        if self.model_fields_set:
            return "the site policy (policy.toml)"
        return "the strict site policy, which holds without a policy.toml (`wardround policy template` writes one),"

    def own_limits(self, terms: LedgerTerms | None = None, plans: Collection[WholePlan] = ()) -> tuple[OwnLimit, ...]:
        """The hospital's own limits on what is charged round by round, each as it is enforced.

        Args:
            terms: of the ledger. None: those of a new one under this policy.
            plans: the studies that this ledger has admitted whole.
        """
        ledger_terms = self.limits.terms(LedgerTerms(), is_new=True) if terms is None else terms
        return tuple(section.at(level, ledger_terms, plans) for level, section in self.limits.by_level().items())

    def floors(self) -> Floors:
        """Return what this hospital demands of any secure sum."""
        # Where the policy writes down no other number, allowing three is asking for no more.
        written = "least_survivors" in self.model_fields_set
        survivors = 3 if self.allow_three and not written else self.least_survivors
        return Floors(self.least_colluders, survivors, self.allow_three)

    def needs_pin(self, settings: AnySettings) -> bool:
        """Whether this hospital takes part in such a study only with a pinned roster."""
        masked = settings.privacy.masking is not None
        return self.unpinned_roster == "refused" or (masked and self.unpinned_roster == "unmasked")


class _AsWritten(SitePolicy):
    """Every entry that the file may have."""

    excluded_patients_file: str | None = None


def _sorted(value: Any) -> Any:
    """Return a JSON value with every list in order: all lists of a policy are sets."""
    if isinstance(value, dict):
        return {key: _sorted(item) for key, item in cast("dict[str, Any]", value).items()}
    return sorted(cast("list[str]", value)) if isinstance(value, list) else value


def _text(path: Path, subject: str) -> str:
    try:
        # With a byte order mark or without: it would become part of the first patient's identifier.
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{subject} cannot be read: {_reading_problem(error)}") from error


def _reading_problem(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or "an error of the disk") if isinstance(error, OSError) else "it is no UTF-8 text"
