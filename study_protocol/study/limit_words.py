"""The guarantee of a limit, its used part, and its ε so far: the same words for every reader.

The guarantee stands first. It is never called ε so far, and ε so far never stands without its condition.
"""

from __future__ import annotations

from accounting.units import RUNNING_CONDITION
from study_protocol.study.limit_statement import LimitProgress, LimitStatement, Spent, SumOfSquares
from study_protocol.wire.rounded import exact, number, percent, significant

# The beginning of the condition in a certificate's assumption.
_CONDITION = "if the study ended here"
NOT_CHARGED = "not charged"
# Of a fixed plan: what `statistics.share` or `allowance` sets aside.
SHARE = "share for questions"


def guarantee_in_words(limit: LimitStatement) -> str:
    """Return the (ε, δ) that holds in any case.

    Raises:
        ValueError: the level is not protected.
    """
    if limit.epsilon is None or limit.delta is None:
        raise ValueError(f"level {limit.level} is not protected")
    at_delta = f"at δ = {exact(limit.delta)}"
    spent = "more than any finite ε" if limit.spent is None else f"ε {number(limit.spent)}"
    if limit.counted is None or limit.spent is None:
        return f"{spent} of at most {exact(limit.epsilon)} {at_delta}"
    if not limit.spent:
        return f"ε {exact(limit.epsilon)} {at_delta} at most, nothing is charged yet"
    return f"{spent} {at_delta}, {_scope(limit, limit.counted)}"


def progress_in_words(limit: LimitStatement) -> str | None:
    """Return how far the limit is used up, such as "step 12 of 254". None: it is kept in ε."""
    progress = limit.counted
    if progress is None:
        return None
    if progress.steps is None:
        return "" if progress.squares is None else squares_in_words(progress.squares)
    steps = f"step {progress.steps.used} of {progress.steps.allowed}"
    if progress.steps.reserved:
        last = progress.steps.used + progress.steps.reserved
        steps += f", step {last} is under way" if progress.steps.reserved == 1 else f", steps to {last} are under way"
    if (lost := progress.steps.abandoned) > 0:
        steps += f", {lost} {'is' if lost == 1 else 'are'} lost with abandoned rounds"
    # After the guarantee, which names the share. Signed certificates hold these words: others would make them unknown.
    return steps if progress.squares is None else f"{steps}; questions: {squares_in_words(progress.squares)}"


def running_in_words(limit: LimitStatement) -> str | None:
    """Return ε so far with its condition. None: the guarantee is that ε, there is no charge, or it was not computed."""
    report = limit.running
    if report is None:
        return None
    _, begun, rest = str(report.certificate["assumption"]).partition(_CONDITION)
    # Without what the guarantee rests on, too, which stands beside it.
    condition = begun + rest.partition(";")[0] if begun else RUNNING_CONDITION
    return f"ε so far {number(report.epsilon)}, {condition}"


def limit_in_words(limit: LimitStatement) -> str:
    """Return the guarantee and how far the limit is used up. Raises ValueError: the level is not protected."""
    return ": ".join(filter(None, (guarantee_in_words(limit), progress_in_words(limit))))


def spent_in_words(spent: Spent, before: Spent | None = None, *, is_abandoned: bool = False) -> str:
    """Return what one limit had spent once a round was charged, and at which step of its plan.

    Args:
        before: the same after the round before. None: there was no charge then.
    """
    name, steps, squares = f"{spent.level} {spent.definition}", spent.steps, spent.squares
    # A limit in ε does not say: with questions alone its ε is the same after every one.
    is_counted = (steps, squares) != (None, None)
    if is_abandoned and is_counted and _counts(spent) == _counts(before):
        return f"{name} {NOT_CHARGED}"
    step = "" if steps is None else f", step {steps}"
    questions = "" if steps is None else f"{SHARE}: "
    squared = f", {questions}μ² used {significant(squares)}" if squares else ""
    return f"{name} {number(spent.spent)}{step}{squared}"


def _counts(spent: Spent | None) -> tuple[int, float]:
    """Return the steps and Σ Δ²/s² by then, 0 where they are not counted."""
    return (0, 0.0) if spent is None else (spent.steps or 0, spent.squares or 0.0)


def _scope(limit: LimitStatement, progress: LimitProgress) -> str:
    """Return for what the guarantee holds."""
    if progress.steps is None:
        return "whenever the study stops"
    # The ε of a plan is below its limit, but for patients who bear no step.
    if limit.spent == limit.epsilon:
        return "which evaluations of patients who are set aside may use up, whenever the study stops"
    # Asked or not: the share is a part of the plan.
    share = "" if progress.squares is None else f" and its whole {SHARE}"
    return f"of the whole plan of {progress.steps.allowed} steps{share}, whenever the study stops"


def squares_in_words(squares: SumOfSquares) -> str:
    """Return how much of μ² is used, such as "used 0.251 of μ² = 0.5, 50.2 %"."""
    share = min(1.0, squares.used / squares.allowed) if squares.allowed > 0 else 1.0
    used, allowance = _of_allowed(squares.used, squares.allowed)
    words = f"used {used} of μ² = {allowance}, {percent(share)}"
    return f"{words}, {significant(squares.reserved)} is reserved" if squares.reserved else words


def _of_allowed(used: float, allowed: float) -> tuple[str, str]:
    """Return what is used, rounded up, and what is allowed, rounded down, with four digits or as many as keep order."""
    for digits in (4, 8, 12):
        texts = significant(used, digits), significant(allowed, digits, round_down=True)
        # Rounded apart, a plan that is all used would seem to be overspent.
        if used > allowed or float(texts[0]) <= float(texts[1]):
            return texts
    return exact(used), exact(allowed)
