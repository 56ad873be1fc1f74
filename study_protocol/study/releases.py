"""The check of a released model as a ledger names it: the same for every hospital and for an audit."""

from __future__ import annotations

from study_protocol.study.any_settings import AnySettings, StatisticsSettings


def fault_of_clip_norm(settings: AnySettings, norm: float | None, before: float | None) -> str | None:
    """Return why no model of this study can name this clip norm, or None if one can.

    Args:
        norm: as the ledger names it, None where it names none.
        before: of the model that was named before it, None for the first one.
    """
    adaptive = None if isinstance(settings, StatisticsSettings) else settings.privacy.adaptive_clip
    if adaptive is None or isinstance(settings, StatisticsSettings):
        return None if norm is None else "it names a clip norm, and the study's is constant"
    return adaptive.fault(norm, before, settings.privacy.clip_norm)
