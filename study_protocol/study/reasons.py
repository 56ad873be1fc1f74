"""Reasons of failed rounds and of pauses, in words that name the setting and the way out."""

from __future__ import annotations

# Of a pause: a person asked for it.
BY_OPERATOR = "operator"
SAME_MODEL_AGAIN = "same-model-again"
SUM_OF_THREE = "sum-of-three"
TOO_FEW_DRAWN = "too-few-drawn"
# Of a query alone.
REFUSED_BY_HOSPITALS = "refused-by-hospitals"
STUDY_FINISHED = "study-finished"
# A query that failed so fails again when it is asked again.
FOR_GOOD = ("query-opened", "max-queries-reached", STUDY_FINISHED)
# Refusals that both sides tell apart from others: after them the next rounds would end in the same way, so that the
# round takes their code as its reason.
STUCK = (SAME_MODEL_AGAIN, SUM_OF_THREE)
_SHOW_MISSING = "`wardround study rounds STUDY` shows operators who is missing or refuses"
_JOIN = f"{_SHOW_MISSING}. Have them run `wardround join`"


def _longer(reason: str, setting: str) -> str:
    return f"If {reason}, a new study with a larger {setting} waits longer"


_STEP = "privacy.masking.step_deadline_seconds"
_ROUND = _longer("training needs more time", "schedule.round_deadline_seconds")
_WORDS = {
    BY_OPERATOR: "an operator paused it",
    "too-few-clients": f"fewer hospitals answered than schedule.min_clients asks for: {_JOIN}. {_ROUND}",
    TOO_FEW_DRAWN: "fewer hospitals were drawn than schedule.min_clients asks for: invite more, or open a study with a "
    "larger privacy.client_sampling_rate",
    "too-few-keys": "too few hospitals were there when the secure sum of the round began: "
    f"{_JOIN}. {_longer('they start slowly', _STEP)}",
    "too-few-shares": "too few hospitals went on after the secure sum had begun: "
    f"{_JOIN}. {_longer('they are slow', _STEP)}",
    "too-few-survivors": "hospitals left during the round, and a sum needs privacy.masking.min_survivors of them: "
    f"{_SHOW_MISSING}. {_ROUND}",
    "too-sparse-survivors": f"hospitals left that lie too close together on the ring: {_SHOW_MISSING}. A new study "
    "with more privacy.masking.neighbours bears more of it",
    "too-few-replies": f"too few hospitals were left to open the sum: {_JOIN}. {_longer('they are slow', _STEP)}",
    "expired": "the secure sum was not opened in time: "
    f"{_SHOW_MISSING}. {_longer('hospitals are slow', 'privacy.masking.expiry_seconds')}",
    "canary-mismatch": "what was opened is not the sum of what hospitals sent: keep the coordinator's log, and compare "
    "versions on both sides (`wardround doctor`) before the study goes on",
    SUM_OF_THREE: "sums of three hospitals are not allowed by one of them: one more hospital is needed, or allow_three "
    "= true in the policy.toml of each, with privacy.masking.allow_three in the study's settings",
    SAME_MODEL_AGAIN: "hospitals open no second sum from one model over other hospitals. If one has left for good, end "
    "the study (`wardround study stop`)",
    REFUSED_BY_HOSPITALS: "so many hospitals said no that too few are left: `wardround query show` shows operators who "
    "and why. Talk to them, then ask again or ask something else",
    STUDY_FINISHED: "the study ended before it was its turn: a new study may ask",
    "budget-exhausted": "others were charged meanwhile, and now it could pass a limit: `wardround ask --plan` says "
    "what noise would fit",
    "query-opened": "its sum was opened before and the answer was lost, and hospitals answer what was opened only "
    "once: ask another question, if only with another noise_multiplier",
    "max-queries-reached": "as many queries as statistics.max_queries allows are charged",
    "updates-lost": "files of updates are gone from the coordinator's store: mend the store first",
    "noised-sum-lost": "the file of the noised sum is gone from the coordinator's store: mend the store first",
    "not-finite": "the new model held NaN or an infinity: a new study with a smaller learning rate is needed",
    "weights-out-of-bounds": "the new model held a weight beyond ±2³⁰, from which no hospital trains: a new "
    "study with a smaller learning rate is needed",
    "stopped": "an operator stopped the study",
}


def in_words(reason: str) -> str:
    """Return advice about the reason, or the code itself if there is none."""
    return _WORDS.get(reason, reason)
