"""The models that a ledger names: every released file by its digest, so that no other one passes for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from accounting.budget.bodies import event_in
from accounting.budget.ledger import Entry, LedgerError


@dataclass(frozen=True)
class NamedModel:
    """One file. version: the round that made it, 0 for the initial model. entry: the number of its ledger entry.

    clip_norm  of the rounds that start from it, where the study's is adaptive
    """

    version: int
    sha256: str
    bytes: int
    entry: int
    clip_norm: float | None = None


class Releases:
    """Follows a ledger from its first entry.

    newest  the last model that was named. None: the ledger names none (its coordinator did not bind models)
    """

    def __init__(self) -> None:
        self.newest: NamedModel | None = None
        self._begun = self._asks = False
        self._settled: int | None = None

    @classmethod
    def restored(cls, saved: Mapping[str, Any] | None) -> Self:
        """Go on from what `to_json` gave. None: from before the first entry."""
        releases = cls()
        if saved is not None:
            releases.newest = None if saved["newest"] is None else NamedModel(**saved["newest"])
            releases._begun, releases._asks, releases._settled = saved["begun"], saved["asks"], saved["settled"]
        return releases

    @property
    def clip_norm(self) -> float | None:
        """Of the rounds that start from the newest model, where the study's is adaptive."""
        return None if self.newest is None else self.newest.clip_norm

    def to_json(self) -> dict[str, Any]:
        newest = None if self.newest is None else asdict(self.newest)
        if newest is not None and newest["clip_norm"] is None:
            # As earlier versions wrote it, which read no other field.
            del newest["clip_norm"]
        return {"newest": newest, "begun": self._begun, "asks": self._asks, "settled": self._settled}

    def take(self, entry: Entry) -> None:
        """Take in the next entry.

        Raises:
            LedgerError: it names a model that cannot be there: of no settled round of training, or a second one.
        """
        if entry.kind in ("reserved", "asked"):
            # A settled round without a model came to nothing.
            self._begun, self._asks, self._settled = True, entry.kind == "asked", None
        elif entry.kind == "settled" and not self._asks:
            self._settled = entry.round
        elif entry.kind == "released":
            self._release(entry)

    def _release(self, entry: Entry) -> None:
        if entry.round is None and (self._begun or self.newest is not None):
            raise LedgerError(entry.sequence, "names an initial model after the study had begun")
        if entry.round is not None and entry.round != self._settled:
            raise LedgerError(entry.sequence, f"names a model of round {entry.round}, which was not just settled")
        self.newest, self._settled = _model_of(entry), None


def named_models(entries: Iterable[Entry]) -> dict[int, NamedModel]:
    """The models that these entries name, by version. The entries were checked before."""
    return {model.version: model for entry in entries if entry.kind == "released" for model in [_model_of(entry)]}


def _model_of(entry: Entry) -> NamedModel:
    event = event_in(entry)
    return NamedModel(entry.round or 0, event["sha256"], event["bytes"], entry.sequence, event.get("clip_norm"))
