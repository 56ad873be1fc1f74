"""Stopping, seen from outside; that `wardround serve` ends cleanly is tested with the command."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.factories.live_coordinator import live


def test_a_stopping_coordinator_sends_the_waiting_home(tmp_path: Path) -> None:
    """The caller's patience is shorter than the wait it asks for."""
    with ThreadPoolExecutor(1) as pool:
        with live(tmp_path / "home") as stopping:
            stopping.open_study("ward")
            who = stopping.enrol("ward", "north")
            path = "/v1/studies/ward/assignment?wait=25"
            headers = {"Authorization": f"Bearer {stopping.token(who, 'GET', path)}"}
            waiting = pool.submit(httpx.get, stopping.url + path, headers=headers, timeout=15, trust_env=False)
            time.sleep(0.5)
            assert not waiting.done()
        assert waiting.result().status_code == 204
