"""The check of a released model as a ledger names it: the same for every hospital and for an audit."""

from __future__ import annotations

from accounting.budget.releases import NamedModel
from study_protocol.study.any_settings import AnySettings, StatisticsSettings


def fault_of_release(settings: AnySettings, before: NamedModel | None, model: NamedModel | None) -> str | None:
    """Return why the ledger cannot name this model in a study with these settings, or None if it can.

    Args:
        before: the model that was named before it, None for the first.
        model: as the ledger names it.
    """
    adaptive = None if isinstance(settings, StatisticsSettings) else settings.privacy.adaptive_clip
    norm = None if model is None else model.clip_norm
    if adaptive is None or isinstance(settings, StatisticsSettings):
        return None if norm is None else "it names a clip norm, and the study's is constant"
    return adaptive.fault(norm, None if before is None else before.clip_norm, settings.privacy.clip_norm)
