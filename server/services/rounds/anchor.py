"""The numbers of released models that a bound on updates depends on, read from their files once."""

from __future__ import annotations

from contextlib import ExitStack
from functools import lru_cache

from server.db.blobs import Blobs, models_of
from server.domain.bounds import anchor, has_anchor
from server.services.coordinator import Coordinator
from study_protocol.study.model_file import LONGEST_METADATA
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import TensorFile
from study_protocol.wire.tensors import Spec


def anchor_of(
    coordinator: Coordinator, study: str, settings: StudySettings, model: Spec, weights: str, previous: str | None
) -> float:
    """Return `server.domain.bounds.anchor` of two models by their digests.

    previous  of the version before, None where that round released none

    Raises:
        FileNotFoundError: a model's file is gone.
    """
    if not has_anchor(settings):
        return 0.0
    return _read(_Start(coordinator.blobs, study, settings, model), weights, previous)


class _Start:
    """The place of two models of one study. Equal by the store and the study, whose settings never change."""

    def __init__(self, blobs: Blobs, study: str, settings: StudySettings, model: Spec) -> None:
        self.blobs, self.study, self.settings, self.model = blobs, study, settings, model

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Start) and self.blobs is other.blobs and self.study == other.study

    def __hash__(self) -> int:
        return hash((id(self.blobs), self.study))

    def open(self, files: ExitStack, sha256: str) -> TensorFile:
        file = self.blobs.open(models_of(self.study), sha256)
        if file is None:
            raise FileNotFoundError("a released model is gone: restore the blobs from their backup")
        descriptor = files.enter_context(file).descriptor
        return TensorFile(descriptor, self.model, longest_metadata=LONGEST_METADATA)


@lru_cache(maxsize=64)
def _read(start: _Start, weights: str, previous: str | None) -> float:
    with ExitStack() as files:
        before = None if previous is None else start.open(files, previous)
        return anchor(start.settings, start.open(files, weights), before)
