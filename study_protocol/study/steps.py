"""The studies that take questions in steps, of which each next one depends on the answers before."""

from __future__ import annotations

from study_protocol.study.any_settings import AnySettings
from study_protocol.study.privacy import Privacy


def fault_of_steps(settings: AnySettings) -> str | None:
    """Return why such a study takes no question in steps, or None if it takes them.

    A classical limit counts questions that depend on answers (`docs/guarantees.md`), and so does a Bayesian one against
    an adaptive adversary.
    """
    privacy = settings.privacy
    bayesian = privacy.bayesian if isinstance(privacy, Privacy) else None
    if bayesian is not None and bayesian.adversary == "path":
        return (
            "a question in steps depends on its own answers, and a Bayesian limit with adversary path does not count "
            "that: ask in a study with classical limits alone"
        )
    return None
