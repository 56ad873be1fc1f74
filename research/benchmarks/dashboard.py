"""What the page of a study costs a browser: its first load, and each update, after many rounds within four limits.

    python -m research.benchmarks.dashboard [--rounds 1000] [--updates 20]

A coordinator in a thread of this process, a study from a seed, headless Chromium. Per update one round more has been
released: what travels, and the main thread's processor time from the DevTools protocol (`TaskDuration` in thread ticks:
all tasks of the page, script, style and layout among them), less what the page takes while nothing is new. Results go
to research/benchmarks/results/dashboard.json. Needs Chromium and the extra `browser`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from tests.factories.live_coordinator import Live, live
from tests.harness import dashboard_states as states
from tests.harness import screenshots
from tests.harness import seeded_studies as seeded

RESULTS = Path(__file__).parent / "results" / "dashboard.json"
# Longer than everything that one piece of news sets off.
SETTLE_MILLISECONDS = 1500
EPSILONS = {"bayesian": 20.0, "classical": 20.0}


def task_milliseconds(session: Any) -> float:
    """Of the main thread, since the page began."""
    metrics = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
    return 1000 * metrics["TaskDuration"]


def measure(coordinator: Live, page: Page, updates: int) -> dict[str, Any]:
    """First load and updates of the study `long`."""
    received: list[int] = []
    page.on("response", lambda answer: _note(received, answer))
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    started = time.perf_counter()
    page.goto("/dashboard/long")
    screenshots.settled(page)
    seconds = time.perf_counter() - started
    page.locator("#bar .status", has_text="Live").wait_for()
    page.wait_for_timeout(SETTLE_MILLISECONDS)
    first = {"seconds": round(seconds, 2), "twin_bytes": sum(received), "requests": len(received)}
    quiet = [_spent(session, page, lambda: None) for _ in range(5)]
    received.clear()
    busy = [
        _spent(session, page, lambda: seeded.write(coordinator, "long", seeded.History(1, open=False)))
        for _ in range(updates)
    ]
    less = [max(0.0, busy_time - statistics.median(quiet)) for busy_time in busy]
    return {
        "first_load": first,
        "update": {
            "main_thread_ms_median": round(statistics.median(less), 1),
            "main_thread_ms_max": round(max(less), 1),
            "quiet_ms_median": round(statistics.median(quiet), 1),
            "twin_bytes_median": round(statistics.median(received)),
        },
        "points_drawn": page.evaluate(
            "document.querySelectorAll('#loss .chart svg path, #loss .chart svg line').length"
        ),
    }


def _note(received: list[int], answer: Any) -> None:
    if "/dashboard/long.json" in answer.url and answer.status == 200:
        received.append(int(answer.headers.get("content-length", 0)))


def _spent(session: Any, page: Page, happen: Any) -> float:
    before = task_milliseconds(session)
    happen()
    page.wait_for_timeout(SETTLE_MILLISECONDS)
    return task_milliseconds(session) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--updates", type=int, default=20)
    options = parser.parse_args()
    with live(Path(tempfile.mkdtemp())) as coordinator, sync_playwright() as playwright:
        study_settings = seeded.settings("joint", rounds=2 * options.rounds, epsilons=EPSILONS, noise=40.0, hospitals=5)
        states.open_study(coordinator, "long", "A long study", study_settings)
        seeded.write(coordinator, "long", seeded.History(options.rounds, open=False))
        browser = playwright.chromium.launch(executable_path=screenshots.CHROMIUM, args=screenshots.ARGUMENTS)
        with screenshots.opened(browser, coordinator, screenshots.DESK, "light") as page:
            results = measure(coordinator, page, options.updates)
        machine = {"processor": platform.machine(), "cores": os.cpu_count(), "chromium": browser.version}
        browser.close()
    result = {
        "rounds": options.rounds,
        "limits": 4,
        **results,
        "machine": machine,
        "vl-convert-python": version("vl-convert-python"),
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
