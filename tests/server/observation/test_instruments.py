"""Labels: one child for each combination, none that a caller makes up, no word of privacy."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from server.observation.instruments import Instruments, neutral


def _lines(instruments: Instruments) -> list[str]:
    return generate_latest(instruments.registry).decode().splitlines()


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("/v1/studies/{study}/budget", "/v1/studies/{study}/*"),
        ("worker-noise", "worker-*"),
        ("read-budget", "read-*"),
        ("worker-release", "worker-release"),
        ("normal-costly-budgeted", "normal-costly-budgeted"),
    ],
)
def test_words_of_privacy_are_left_out_of_labels(name: str, label: str) -> None:
    assert neutral(name) == label


def test_a_request_is_counted_by_route_method_and_status_with_its_bytes() -> None:
    instruments = Instruments()
    for status in (200, 200, 409):
        instruments.answered("PUT", "/v1/studies/{study}/budget", status, 0.02, 100, 10)
    lines = _lines(instruments)
    of = 'method="PUT",route="/v1/studies/{study}/*"'
    assert f'wardround_requests_total{{{of},status="200"}} 2.0' in lines
    assert f'wardround_requests_total{{{of},status="409"}} 1.0' in lines
    assert f"wardround_request_bytes_total{{{of}}} 300.0" in lines
    assert f"wardround_response_bytes_total{{{of}}} 30.0" in lines
    assert f"wardround_request_seconds_count{{{of}}} 3.0" in lines
    assert 'wardround_request_seconds_bucket{le="0.01",' + of + "} 0.0" in lines
    assert 'wardround_request_seconds_bucket{le="0.025",' + of + "} 3.0" in lines


def test_transactions_and_steps_are_timed_and_what_went_wrong_is_counted() -> None:
    instruments = Instruments()
    instruments.committed("worker-noise", 0.5, 2)
    instruments.committed("worker-noise", 0.5, 0)
    instruments.stepped("close", 2.0)
    assert 'wardround_worker_step_failures_total{kind="close"} 0.0' in _lines(instruments)
    instruments.failed("close")
    lines = _lines(instruments)
    assert 'wardround_transaction_seconds_sum{transaction="worker-*"} 1.0' in lines
    assert 'wardround_transaction_retries_total{transaction="worker-*"} 2.0' in lines
    assert 'wardround_worker_step_seconds_count{kind="close"} 1.0' in lines
    assert 'wardround_worker_step_failures_total{kind="close"} 1.0' in lines
