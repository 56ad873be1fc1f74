"""The errors of accounting, drawn once.

AccountingError
├── InvalidArgument (also ValueError)   a value no guarantee can be computed from: names the argument
├── MaxStepsExceeded                     a step past the number of steps declared before the first
├── LimitExceeded                       a step that the accountant's own filter does not allow
├── EstimatorRefused                    this sample cannot carry this estimator (m < 3, zero variance)
├── ReservationClosed                   a reservation closed twice, or out of order
└── Unreachable                         no parameter in the searched range meets the target
"""

from __future__ import annotations


class AccountingError(Exception):
    """Base of every error raised here."""


class InvalidArgument(AccountingError, ValueError):
    """`argument` is the name of the parameter that was refused. The object asked is unchanged."""

    def __init__(self, argument: str, reason: str) -> None:
        super().__init__(f"{argument}: {reason}")
        self.argument = argument
        self.reason = reason

    # pickle would call the class with `args`, which is the one formatted message.
    def __reduce__(self) -> tuple[type[InvalidArgument], tuple[str, str]]:
        return InvalidArgument, (self.argument, self.reason)


class MaxStepsExceeded(AccountingError):
    """A step past `max_steps`, or past the last of the weights: with it they might sum to more than one."""


class LimitExceeded(AccountingError):
    """The filter at its fixed order would be passed."""


class EstimatorRefused(AccountingError):
    """The estimator's own conditions do not hold for this sample."""


class ReservationClosed(AccountingError):
    """A reservation is used once, and before any other step."""


class Unreachable(AccountingError):
    """Calibration found no value in its search range."""
