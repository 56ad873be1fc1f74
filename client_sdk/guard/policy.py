"""The site policy: what this hospital allows, for any study and coordinator.

The policy is a file that the hospital owns. It is checked before anything else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

from pydantic import Field, PrivateAttr, ValidationError, field_validator

from client_sdk.errors import ConfigurationError
from client_sdk.guard.charges import OwnLimit
from client_sdk.guard.exclusion import ExclusionEntry, ExclusionList, inline_identity
from client_sdk.guard.exclusion_file import OBJECTIONS_FILE, ExclusionFile
from client_sdk.guard.limit_terms import LedgerTerms, WholePlan
from client_sdk.guard.policy_limits import IndividualLimit, Limits, PolicySection
from study_protocol.cells.identity import objection_key
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.bounds import LARGEST_DELTA, LARGEST_EPSILON, MIN_NOISE_MULTIPLIER
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.values import Name, Positive, Probability, Sha256
from study_protocol.wire.written import Unreadable, read_toml
from study_protocol.wire.wrong_entries import wrong_entries

POLICY_FILE = "policy.toml"
Set = Annotated[frozenset[Name], Field(min_length=1)]


@dataclass(frozen=True)
class Floors:
    """The minimum that this hospital demands of any session of any study.

    allow_three admits sessions of three clients, which leave two honest parties and bear no drop-out.
    """

    colluders: int
    min_survivors: int
    allow_three: bool


class QueryRules(PolicySection):
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


class ApprovalRule(PolicySection):
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


class SitePolicy(PolicySection):
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
    # Of a policy that was read, and the bytes that its entries come from.
    _file: ExclusionFile | None = PrivateAttr(default=None)
    _data: bytes = PrivateAttr(default=b"")

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

        Left out: `objections.txt` beside it, where there is one.

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
        if excluded is not None and not isinstance(excluded, str):
            raise ConfigurationError(f"the site policy {path}: excluded_patients_file: must be the name of a file")
        return policy._with_file(ExclusionFile(path.parent / (excluded or OBJECTIONS_FILE), excluded is not None))

    @classmethod
    def in_force(cls, directory: Path) -> Self:
        """Return the policy in a hospital's directory, or the strict one without a file. Raises as `read`."""
        path = directory / POLICY_FILE
        return cls.read(path) if path.exists() else cls()._with_file(ExclusionFile(directory / OBJECTIONS_FILE, False))

    @property
    def exclusion_file(self) -> ExclusionFile | None:
        """The file with patients who are left out. None: a program made this policy."""
        return self._file

    def current(self) -> Self:
        """Return this policy with the patients whom its list leaves out by now.

        A patient who was left out before stays out: to remove an entry is a change of the policy, which a running
        study does not take over.

        Raises:
            ConfigurationError: the list cannot be read any more, or holds a wrong line.
        """
        if self._file is None or (data := self._file.read()) == self._data:
            return self
        keys = {objection_key(entry.identity) for entry in self.exclusions.entries}
        added = tuple(entry for entry in self._file.entries(data) if objection_key(entry.identity) not in keys)
        return self._with_entries((*self._listed, *added), data) if added else self

    def _with_file(self, file: ExclusionFile) -> Self:
        data = file.read()
        policy = self._with_entries(file.entries(data), data) if data or file.is_named else self
        policy._file = file
        return policy

    def _with_entries(self, listed: tuple[ExclusionEntry, ...], data: bytes) -> Self:
        inline = self.excluded_patients[: max(0, len(self.excluded_patients) - len(self._listed))]
        identities = (*inline, *(entry.identity for entry in listed))
        policy = self.model_copy(update={"excluded_patients": identities})
        policy._listed, policy._data = listed, data
        return policy

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
