"""What of the released models a bound on updates depends on, read from their files once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from client_sdk.protocol.study.settings import StudySettings
from client_sdk.protocol.wire.tensors import Spec, read_file
from server.db.blobs import models_scope
from server.domain.bounds import anchor, has_anchor
from server.services.coordinator import Coordinator


def anchor_of(
    coordinator: Coordinator, study: str, settings: StudySettings, model: Spec, weights: str, previous: str | None
) -> float:
    """`server.domain.bounds.anchor` of two models by their digests.

    previous  of the version before, None where that round released none

    Raises:
        FileNotFoundError: a model's file is gone.
    """
    if not has_anchor(settings):
        return 0.0
    scope = models_scope(study)
    paths = [None if sha256 is None else coordinator.blobs.find(scope, sha256) for sha256 in (weights, previous)]
    if paths[0] is None or (paths[1] is None) != (previous is None):
        raise FileNotFoundError("a released model is gone: restore the blob folder from its backup")
    return _read(_Start(paths[0], paths[1], settings, model))


@dataclass(frozen=True)
class _Start:
    """Two models of one study. Equal by their paths, which name the study and what is in them."""

    weights: Path
    previous: Path | None
    settings: StudySettings = field(compare=False)
    model: Spec = field(compare=False)


@lru_cache(maxsize=64)
def _read(start: _Start) -> float:
    previous = None if start.previous is None else dict(read_file(start.previous, start.model))
    return anchor(start.settings, dict(read_file(start.weights, start.model)), previous)
