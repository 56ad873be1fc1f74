"""What every use case is handed, and what those that may be repeated answer with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from client_sdk.protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from client_sdk.protocol.randomness.source import AddressedCoins
from server.db.blobs import FileBlobs
from server.db.session import Database
from server.signing_key import SigningKey

T = TypeVar("T")


@dataclass(frozen=True)
class Written(Generic[T]):
    """The answer to a write that may be repeated; `created` is False when it was here already."""

    body: T
    created: bool


@dataclass(frozen=True)
class Coordinator:
    """Everything a use case may touch. Built once by whoever starts the process.

    origin  public origin, for example `https://study.example.org`
    """

    database: Database
    blobs: FileBlobs
    coins: AddressedCoins
    noise: DiscreteGaussianNoise
    signer: SigningKey
    origin: str
