from datetime import UTC, datetime

import pytest

from client_sdk.api.attempts import Backoff, may_repeat, retry_after_seconds

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-3", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_both_of_its_forms(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, now=NOW) == seconds


def test_pauses_double_up_to_a_ceiling_and_stay_within_half_of_it() -> None:
    low = Backoff(1e9, clock=lambda: 0.0, uniform=lambda a, b: a)
    high = Backoff(1e9, clock=lambda: 0.0, uniform=lambda a, b: b)
    assert [high.pause() for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert [low.pause() for _ in range(3)] == [0.25, 0.5, 1.0]


def test_retry_after_is_obeyed_with_jitter_on_top_only() -> None:
    backoff = Backoff(1e9, clock=lambda: 0.0, uniform=lambda a, b: b)
    assert backoff.pause(9.0) == 9.0 + 0.5 / 4


def test_patience_ends_before_a_pause_that_would_pass_it() -> None:
    clock = [0.0]
    backoff = Backoff(10.0, clock=lambda: clock[0], uniform=lambda a, b: b)
    assert backoff.pause() == 0.5
    assert backoff.pause(11.0) is None
    clock[0] = 9.9
    assert backoff.pause() is None


def test_only_what_did_nothing_repeats_a_request_that_must_not_happen_twice() -> None:
    assert all(may_repeat(repeatable=True, status=status) for status in (408, 429, 502, 503, 504))
    assert [s for s in (408, 429, 500, 502, 503, 504) if may_repeat(repeatable=False, status=s)] == [429, 503]
    assert not any(may_repeat(repeatable=True, status=status) for status in (400, 401, 404, 409, 410, 413, 422, 500))
