"""The context of every use case, and the answer of those that may be repeated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from accounting.budget.history import Walk
from server.db.blobs import Blobs, OpenedFile
from server.db.raw_rows import RawRows
from server.db.session import Database
from server.db.session_states import States
from server.domain.change_request import ChangeRequest
from server.observation.observer import UNOBSERVED, ProcessObserver
from server.signing_key import SigningKey
from server.single_sign_on.grants import GroupGrant
from study_protocol.documents.certify import CertificateAccount
from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.randomness.source import AddressedCoins
from study_protocol.study.certificate import CertifiedMean
from study_protocol.study.messages import AssignmentBody, BudgetStatement, SignedParameters

T = TypeVar("T")
KeptMean = tuple[tuple[str, ...], CertifiedMean, OpenedFile]
"""SHA-256 of the models that a mean is made of, the mean, and its file."""


@dataclass(frozen=True)
class Written(Generic[T]):
    """The answer to a write that may be repeated. `created` is False when it was here already."""

    body: T
    created: bool


@dataclass(frozen=True)
class Prepared:
    """The assignment of one round, complete but for who is asking, beside the ledger's head that it was made under."""

    round: int
    head_sha256: str
    body: AssignmentBody
    session: SignedParameters | None


@dataclass(frozen=True)
class Certified:
    """The numbers of a certificate, and the hashes of the entries that they follow from."""

    told_by: tuple[str, str]
    computed: CertificateAccount


@dataclass(frozen=True)
class Coordinator:
    """The dependencies of the use cases. Built once, when the process starts.

    origin      public origin, for example `https://study.example.org`
    binds_models  new studies name every released model in their ledger, and the people who act
    statements  by study, the last budget statement that this process compared with what was signed, and its rows
    reports     by study, the tighter numbers beside its limits, and the charges that they are of
    assignments by study, the last assignment that this process put together
    pages       of ledgers, as JSON, by study and place, beside what each was made of
    certified   results of ledgers for certificates, by study and round
    means       results of studies that are means of released models, by study
    walks       by study, how far this process has walked along its ledger
    sessions    secure sums as this process saw them last
    observer    metrics and traces of this process
    group_grants  what members of the identity provider's groups may do
    asked       the change that somebody asks for, where this is the coordinator as it serves one request
    """

    database: Database
    blobs: Blobs
    coins: AddressedCoins
    noise: DiscreteGaussianNoise
    signer: SigningKey
    origin: str
    binds_models: bool = True
    group_grants: tuple[GroupGrant, ...] = ()
    asked: ChangeRequest | None = None
    statements: dict[str, tuple[RawRows, BudgetStatement]] = field(
        default_factory=dict[str, tuple[RawRows, BudgetStatement]], repr=False, compare=False
    )
    reports: dict[str, tuple[Any, list[list[dict[str, Any]]]]] = field(
        default_factory=dict[str, tuple[Any, list[list[dict[str, Any]]]]], repr=False, compare=False
    )
    assignments: dict[str, Prepared] = field(default_factory=dict[str, Prepared], repr=False, compare=False)
    pages: dict[tuple[str, int, int], tuple[tuple[Any, ...], bytes]] = field(
        default_factory=dict[tuple[str, int, int], tuple[tuple[Any, ...], bytes]], repr=False, compare=False
    )
    certified: dict[tuple[str, int | None], Certified] = field(
        default_factory=dict[tuple[str, int | None], Certified], repr=False, compare=False
    )
    means: dict[str, KeptMean] = field(default_factory=dict[str, KeptMean], repr=False, compare=False)
    walks: dict[str, Walk] = field(default_factory=dict[str, Walk], repr=False, compare=False)
    sessions: States = field(default_factory=States, repr=False, compare=False)
    observer: ProcessObserver = field(default=UNOBSERVED, repr=False, compare=False)
