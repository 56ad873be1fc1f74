"""Why a round, a query or a study ended, or why a study is paused: one text for commands, logs and web pages."""

from __future__ import annotations

from collections.abc import Mapping

# Of a pause: a person asked for it.
BY_OPERATOR = "operator"
# Of a pause: the study was opened for questions, and training has not begun.
QUESTIONS_FIRST = "questions-first"
# Pauses of training in which queries are still answered. After repeated failures nothing begins, nor in the pause of a
# study that does not train.
ANSWERING = (BY_OPERATOR, QUESTIONS_FIRST)
SAME_MODEL_AGAIN = "same-model-again"
SUM_OF_THREE = "sum-of-three"
TOO_FEW_DRAWN = "too-few-drawn"
# Rounds that failed because hospitals were not there. A study that paused for one goes on once they are back.
HOSPITALS_MISSING = (
    *("too-few-clients", "too-few-keys", "too-few-shares", "too-few-survivors", "too-sparse-survivors"),
    "too-few-replies",
)
# Of a hospital's participation alone: it left after one round, and the study goes on.
MORE_TO_COME = "more-to-come"
# Of a query alone.
UNDECIDED = "undecided"
REFUSED_BY_HOSPITALS = "refused-by-hospitals"
STUDY_FINISHED = "study-finished"
# A query that failed so fails again when it is asked again.
FOR_GOOD = ("query-opened", "max-queries-reached", STUDY_FINISHED)
# Refusals that both sides tell apart from others: after them the next rounds would end in the same way, so that the
# round takes their code as its reason.
STUCK = (SAME_MODEL_AGAIN, SUM_OF_THREE)
_MISSING = "`wardround study rounds STUDY` shows leads which hospitals are missing or refuse."
_JOIN = f"{_MISSING} Have them run `wardround join`."
_WAIT = "For slow hospitals, open a new study with a larger"
_STEP = f"{_WAIT} privacy.masking.step_deadline_seconds."
_ROUND = f"{_WAIT} schedule.round_deadline_seconds."
_RESTORE = "Restore database and files together from a backup."
_RATE = "Open a new study with a smaller learning rate."
# The codes of `ParameterFault`.
_UNSOUND = (
    *("too-many-clients", "unsound-graph", "low-threshold", "low-survivors", "unsound-vector", "unordered-deadlines"),
    *("malformed-parameters", "unknown-suite", "repeated-vector"),
)

REASONS: Mapping[str, str] = {
    BY_OPERATOR: "The study's lead paused it.",
    QUESTIONS_FIRST: "The study takes questions, and training has not begun. `wardround study train STUDY` begins it.",
    "stopped": "The study's lead stopped it.",
    "too-few-clients": f"Fewer hospitals answered than schedule.min_clients requires. {_JOIN} {_ROUND}",
    TOO_FEW_DRAWN: "Fewer hospitals were drawn than schedule.min_clients requires. The next round draws again. Invite "
    "more hospitals, or open a study with a larger privacy.client_sampling_rate.",
    "too-few-keys": f"Too few hospitals began the secure sum. {_JOIN} {_STEP}",
    "too-few-shares": f"Too few hospitals continued the secure sum. {_JOIN} {_STEP}",
    "too-few-survivors": f"Fewer hospitals sent an update than privacy.masking.min_survivors requires. {_MISSING} "
    f"{_ROUND}",
    "too-sparse-survivors": f"Too many neighbours on the ring were lost. {_MISSING} A new study with more "
    "privacy.masking.neighbours tolerates more losses.",
    "too-few-replies": f"Too few hospitals helped to open the sum. {_JOIN} {_STEP}",
    "expired": f"The secure sum was not opened in time. {_MISSING} {_WAIT} privacy.masking.expiry_seconds.",
    "canary-mismatch": "The opened value is not the sum of what the hospitals sent. Nothing was released. Keep the "
    "coordinator's log, and compare versions on both sides (`wardround doctor`) before the study continues.",
    SUM_OF_THREE: "A hospital refused a sum of three hospitals. With three, two could compute the third's value. Enrol "
    "one more hospital, or set allow_three = true in each policy.toml and privacy.masking.allow_three in the settings.",
    SAME_MODEL_AGAIN: "A hospital refused a second sum from the same model over other hospitals. Two such sums could "
    "show one hospital's update. If a hospital has left for good, end the study (`wardround study stop`).",
    REFUSED_BY_HOSPITALS: "Too many hospitals refused. `wardround query show` shows leads why. Talk to them, then "
    "ask again or ask another question.",
    UNDECIDED: "Too few hospitals decided in the time of statistics.decision_deadline_seconds. The part of the budget "
    "that was kept for the query is free again. Ask again when people there have time.",
    STUDY_FINISHED: "The study ended before the query was asked. A new study may ask.",
    "budget-exhausted": "Other charges came first, and the query could now pass a limit. `wardround ask --plan` shows "
    "the noise that would fit.",
    "query-opened": "The sum was opened before, and the answer was lost. Hospitals answer an opened query only once. "
    "Ask another question, for example with another noise_multiplier.",
    "max-queries-reached": "As many queries as statistics.max_queries allows are charged. A new study may ask.",
    "database-differs": "The coordinator's database was changed without its key. The study has ended.",
    "updates-lost": f"Files of updates are gone from the coordinator's store. {_RESTORE}",
    "noised-sum-lost": f"The file of the noised sum is gone from the coordinator's store. {_RESTORE}",
    "not-finite": f"The new model held NaN or an infinity. {_RATE}",
    "weights-out-of-bounds": f"The new model held a weight beyond ±2³⁰, from which no hospital trains. {_RATE}",
    **dict.fromkeys(_UNSOUND, "The settings allow no sound secure sum. Open a new study with other masking settings."),
}
"""What happened, in the first sentence, and what to do, for each reason of a round, a query or a pause."""

ENDINGS: Mapping[str, tuple[str, str]] = {
    "budget-exhausted": ("the budget is used", "The next round could pass a limit, so it does not begin."),
    "max-queries-reached": ("all queries are answered", "As many queries as statistics.max_queries were answered."),
    "max-steps-reached": ("all rounds are done", "All steps of privacy.max_steps have been taken."),
    "stopped": ("its lead stopped it", "Charges stay, and no round follows."),
    "deleted": ("its lead deleted it", "The study was deleted before it began. Its ledger is kept."),
    "database-differs": (
        "the database was changed",
        "The coordinator's database was changed without its key and may hold forged data, so no number is shown. Keep "
        "a copy of the database and find the cause. Then restore database and files together from a backup, or open a "
        "new study.",
    ),
}
"""A name and an explanation for each `stop_reason` of a study."""


TAKES_QUESTIONS = "training done, takes questions"
"""Of a running study whose rounds are all done."""


def in_words(reason: str) -> str:
    """Return what happened and what to do, or an unknown code itself."""
    return REASONS.get(reason, f"{reason}.")


def explained(reason: str) -> str:
    """Return what happened and what to do, after the code itself. A newer coordinator's unknown code stays alone."""
    return f"{reason}: {REASONS[reason]}" if reason in REASONS else reason


def ending(stop_reason: str) -> str:
    """Return why a study has ended and what to do, after the code itself."""
    return f"{stop_reason}. {ENDINGS[stop_reason][1]}" if stop_reason in ENDINGS else stop_reason
