"""What every use case is handed."""

from __future__ import annotations

from dataclasses import dataclass

from server.db.session import Database
from server.domain.ports import Blobs, Coins, NoiseSource, Signer


@dataclass(frozen=True)
class Coordinator:
    """Everything a use case may touch. Built once by whoever starts the process.

    origin  public origin, for example `https://study.example.org`
    """

    database: Database
    blobs: Blobs
    coins: Coins
    noise: NoiseSource
    signer: Signer
    origin: str
