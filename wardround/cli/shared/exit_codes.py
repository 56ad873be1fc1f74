"""The exit codes of every command. They are stable, because services, scripts and batch systems read them."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """One way in which a command ends.

    Attributes:
        meaning: of the code after `wardround join`.
        is_passing: the same command may succeed later, without a change by a person.
    """

    meaning: str
    is_passing: bool

    def __new__(cls, code: int, meaning: str, is_passing: bool = False) -> ExitCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning, member.is_passing = meaning, is_passing
        return member

    DONE = 0, "the study has ended"
    NOT_POSSIBLE = 1, "not possible as requested"
    WRONG_USAGE = 2, "wrong usage"
    REFUSED = 3, "refused by this hospital's own rules"
    NOT_TRUSTED = 4, "the coordinator is not trusted"
    UNREACHABLE = 5, "the coordinator cannot be reached, or another service answers at its address", True
    NOT_FINITE = 6, "training met NaN or an infinity"
    # EX_TEMPFAIL of sysexits.h, which batch systems know as "try again later".
    MORE_TO_COME = 75, "with --once: the study goes on, run the same command again", True
    # 128 + SIGINT, as shells count.
    INTERRUPTED = 130, "stopped with Ctrl-C", True


def codes_in_words() -> str:
    """Return every code with its meaning, as one sentence for a help text."""
    return f"Exit codes: {', '.join(f'{code:d} {code.meaning}' for code in ExitCode)}."
