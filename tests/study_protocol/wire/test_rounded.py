"""Numbers for the eye promise no more than the exact ones, whatever their size."""

from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st

from study_protocol.wire.rounded import number, percent

SIZES = st.floats(0, allow_nan=False, allow_infinity=False)


@example(1.7976931348623157e308)
@example(1e26)
@example(5e-324)
@given(SIZES)
def test_a_loss_is_rounded_up_and_what_is_left_down(value: float) -> None:
    exact, step = Fraction(repr(value)), Fraction(1, 1000)
    assert exact <= Fraction(number(value)) < exact + step
    assert exact - step < Fraction(number(value, round_down=True)) <= exact


@example(1.7976931348623157e308)
@given(SIZES)
def test_a_share_is_rounded_up_to_a_tenth(value: float) -> None:
    exact = 100 * Fraction(repr(value))
    assert exact <= Fraction(percent(value).removesuffix(" %")) < exact + Fraction(1, 10)
