"""Values: checked where they come in, and as JSON and back, bit for bit.

Every check returns the value in its one form and raises InvalidArgument, which names the argument, for anything else.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from enum import Enum, StrEnum
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidArgument

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FloatArray = npt.NDArray[np.float64]
Word = TypeVar("Word", bound=StrEnum)
Instance = TypeVar("Instance")

# Below, α = λ + 1 keeps too few of λ's digits for a cost to be bounded (at 1e-16 none), and no statement is read there.
LEAST_ORDER = 1e-6
# Every count up to it is a float.
MOST_COUNT = 2**53
# Of a sequence that is printed in full.
_MOST_ITEMS = 8


def check_number(name: str, value: object, *, finite: bool = True) -> float:
    """A real number: no bool, text, NaN, negative zero, and no infinity unless allowed."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidArgument(name, f"must be a number, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError as error:
        raise InvalidArgument(name, "is too large") from error
    if math.isnan(number):
        raise InvalidArgument(name, "is NaN")
    if finite and math.isinf(number):
        raise InvalidArgument(name, "is infinite")
    if number == 0 and math.copysign(1.0, number) < 0:
        raise InvalidArgument(name, "is negative zero")
    return number


def check_positive(name: str, value: object) -> float:
    """A finite number > 0."""
    number = check_number(name, value)
    if number <= 0:
        raise InvalidArgument(name, f"must be > 0, not {number!r}")
    return number


def check_order(name: str, value: object) -> float:
    """A moment order λ ≥ 1e-6."""
    number = check_positive(name, value)
    if number < LEAST_ORDER:
        raise InvalidArgument(name, f"must be ≥ {LEAST_ORDER!r}, not {number!r}")
    return number


def order_or_alpha(order: object, alpha: object, names: tuple[str, str] = ("order", "alpha")) -> float | None:
    """Return the order λ, given as itself or as the Rényi order α = λ + 1, or None without either. Both are an
    error."""
    if order is not None and alpha is not None:
        raise InvalidArgument(names[1], f"is {names[0]} + 1: give one of the two")
    if alpha is None:
        return None if order is None else check_order(names[0], order)
    if (number := check_positive(names[1], alpha) - 1) < LEAST_ORDER:
        raise InvalidArgument(names[1], f"must be > 1 by at least {LEAST_ORDER!r}, not {alpha!r}")
    return number


def check_nonnegative(name: str, value: object) -> float:
    """A finite number ≥ 0."""
    number = check_number(name, value)
    if number < 0:
        raise InvalidArgument(name, f"must be ≥ 0, not {number!r}")
    return number


def check_rate(name: str, value: object) -> float:
    """A Poisson sampling rate in [0, 1]."""
    number = check_nonnegative(name, value)
    if number > 1:
        raise InvalidArgument(name, f"must be ≤ 1, not {number!r}")
    return number


def check_delta(value: object, name: str = "delta") -> float:
    """A failure probability in (0, 1)."""
    number = check_positive(name, value)
    if number >= 1:
        raise InvalidArgument(name, f"must be < 1, not {number!r}")
    return number


def check_count(name: str, value: object, *, minimum: int = 1, maximum: int = MOST_COUNT) -> int:
    """Return an integer ≥ minimum and ≤ maximum. A float is refused even when it is whole."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidArgument(name, f"must be an integer, not {type(value).__name__}")
    number = int(value)
    if number < minimum:
        raise InvalidArgument(name, f"must be ≥ {minimum}, not {number}")
    if number > maximum:
        raise InvalidArgument(name, f"must be ≤ {maximum}")
    return number


def real_array(name: str, values: object) -> FloatArray:
    """A float64 array of any shape, which may hold NaN and infinities."""
    try:
        raw = np.asarray(values)
    except ValueError as error:
        raise InvalidArgument(name, "is no array of numbers") from error
    # Before the cast, which would take bools and text that looks like numbers.
    if raw.dtype.kind not in "iuf":
        raise InvalidArgument(name, f"must hold real numbers, not {raw.dtype}")
    return raw.astype(np.float64)


def check_array(name: str, values: object, *, low: float = 0.0, shape: int | None = 1) -> FloatArray:
    """Finite float64 array, every entry ≥ low, not empty, no negative zero. `shape` is its number of axes."""
    array = real_array(name, values)
    if shape is not None and array.ndim != shape:
        raise InvalidArgument(name, f"must have {shape} {'axis' if shape == 1 else 'axes'}, not {array.ndim}")
    if array.size == 0:
        raise InvalidArgument(name, "is empty")
    if not np.isfinite(array).all():
        raise InvalidArgument(name, "holds NaN or infinity")
    if bool(((array == 0) & np.signbit(array)).any()):
        raise InvalidArgument(name, "holds negative zero")
    if bool((array < low).any()):
        raise InvalidArgument(name, f"holds a value below {low!r}")
    return array


def check_orders(orders: Sequence[float] | FloatArray, name: str = "orders") -> FloatArray:
    """Moment orders λ ≥ 1e-6, strictly increasing."""
    array = check_array(name, orders)
    if bool((array < LEAST_ORDER).any()):
        raise InvalidArgument(name, f"every order must be ≥ {LEAST_ORDER!r}, not {float(array.min())!r}")
    if bool((np.diff(array) <= 0).any()):
        raise InvalidArgument(name, "must be strictly increasing")
    return array


def orders_or_alphas(
    orders: float | Sequence[float] | npt.NDArray[np.floating] | None,
    alphas: float | Sequence[float] | npt.NDArray[np.floating] | None,
    names: tuple[str, str] = ("orders", "alphas"),
) -> npt.NDArray[np.float64]:
    """Orders λ of the shape they were given in, as themselves or as Rényi orders α = λ + 1: exactly one of the two."""
    if orders is None and alphas is None:
        raise InvalidArgument(names[0], f"is required, as itself or as {names[1]} = {names[0]} + 1")
    if orders is not None and alphas is not None:
        raise InvalidArgument(names[1], f"is {names[0]} + 1: give one of the two")
    if alphas is None:
        check_orders(np.atleast_1d(np.asarray(orders)), names[0])
        return np.asarray(orders, dtype=np.float64)
    if bool((check_array(names[1], np.atleast_1d(np.asarray(alphas))) <= 1).any()):
        raise InvalidArgument(names[1], "every Rényi order must be > 1")
    checked_orders = np.asarray(alphas, dtype=np.float64) - 1
    check_orders(np.atleast_1d(checked_orders), names[1])
    return checked_orders


def check_choice(name: str, value: object, choices: Collection[str]) -> str:
    """One of the texts in `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidArgument(name, f"must be one of {', '.join(choices)}, not {value!r}")
    return str(value)


def check_word(name: str, kind: type[Word], value: object) -> Word:
    """One of the words of an enumeration, given as itself or as its text."""
    try:
        return kind(value)
    except ValueError as error:
        raise InvalidArgument(name, f"must be one of {', '.join(kind)}, not {value!r}") from error


def check_instance(name: str, kind: type[Instance], value: object) -> Instance:
    """A value of this class."""
    if not isinstance(value, kind):
        raise InvalidArgument(name, f"must be of class {kind.__name__}, not {type(value).__name__}")
    return value


def check_instances(name: str, kind: type[Instance], values: object) -> tuple[Instance, ...]:
    """Any sequence of values of this class, as a tuple."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidArgument(name, f"must be a sequence of {kind.__name__}, not {type(values).__name__}")
    return tuple(check_instance(name, kind, value) for value in cast("Iterable[object]", values))


def fields_to_json(value: DataclassInstance) -> dict[str, Any]:
    """A flat dataclass by its fields: tuples become lists, enums their text. Equal values give equal dictionaries."""
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return str(value)
    return list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def short_repr(value: DataclassInstance) -> str:
    """Return `repr` of a dataclass, with long sequences by their first and last item and their length."""
    parts = (f"{field.name}={_short(getattr(value, field.name))}" for field in fields(value))
    return f"{type(value).__name__}({', '.join(parts)})"


def _short(value: Any) -> str:
    items: object = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(items, list | tuple):
        return repr(items)
    sequence = cast("Sequence[object]", items)
    count = len(sequence)
    return repr(sequence) if count <= _MOST_ITEMS else f"<{count} from {sequence[0]!r} to {sequence[-1]!r}>"


def rounded_up(value: float, digits: int) -> float:
    """The least number of so many significant decimal digits that is not below value, and value itself where not
    finite.

    >>> rounded_up(1.2341, 4), rounded_up(0.00123, 2), rounded_up(2.5, 4)
    (1.235, 0.0013, 2.5)
    """
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int) -> float:
    """The largest number of so many significant decimal digits that is not above value, and value itself where not
    finite.

    >>> rounded_down(1.2349, 4), rounded_down(0.00129, 2), rounded_down(2.5, 4)
    (1.234, 0.0012, 2.5)
    """
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, rounding: str) -> float:
    if not math.isfinite(value):
        return value
    # Reading back is monotone: the float of a decimal on one side of value is not on the other.
    return float(Context(prec=digits, rounding=rounding).create_decimal(value))


def array_to_json(array: FloatArray) -> dict[str, Any]:
    """Return shape and float64 bytes, little-endian, of any shape."""
    data = np.ascontiguousarray(array, dtype="<f8").tobytes()
    return {"shape": list(array.shape), "float64": base64.b64encode(data).decode("ascii")}


def array_from_json(value: dict[str, Any]) -> FloatArray:
    """Inverse of `array_to_json`. KeyError or ValueError: it is none."""
    data = base64.b64decode(value["float64"], validate=True)
    # A copy: the array of frombuffer is read-only.
    return np.frombuffer(data, dtype="<f8").reshape(value["shape"]).astype(np.float64)
