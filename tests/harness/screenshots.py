"""Pictures of every page of the dashboard, taken from a coordinator that really runs, with studies from a seed.

    python -m tests.harness.screenshots [--to docs/screenshots]
    python -m tests.harness.screenshots --every FOLDER

`--every` takes every page and state on a desk and a phone, light and dark, and prints what is wrong with its layout.
Needs Chromium and the extras `browser` and `images`. Pictures are written with a palette, so that they stay small.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from server.signing_key import FILE_NAME
from tests.factories.live_coordinator import Live, live
from tests.harness import dashboard_states as states
from tests.harness import page_layout
from tests.harness import seeded_studies as seeded

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
DESK, PHONE = (1440, 900), (390, 844)
COLOURS = 160
# The time at which the studies are seen.
NOW = datetime(2026, 11, 14, 9, 30, tzinfo=UTC)
BOTH_LIMITS = {"bayesian": 3.0, "classical": 8.0}


@dataclass(frozen=True)
class _Still:
    """A clock that stands, so that pictures are the same again."""

    def now(self) -> float:
        return NOW.timestamp()


@contextmanager
def still() -> Iterator[Live]:
    """A coordinator at one moment, with a signing key that is the same at every start."""
    home = Path(tempfile.mkdtemp())
    (home / FILE_NAME).write_bytes(bytes(range(32)))
    (home / FILE_NAME).chmod(0o600)
    with live(home, time_of_day=_Still()) as coordinator:
        yield coordinator


def seed(coordinator: Live) -> None:
    """One study in each state that a page can show."""
    for name, title, scheme, epsilons, noise, past in (
        ("icu-sepsis", "Early warning of sepsis on intensive care", "parallel", BOTH_LIMITS, 4.0, _RUNNING),
        ("stroke-imaging", "Stroke: which scans need a second look", "joint", BOTH_LIMITS, 6.0, _JOINT),
        ("asthma-readmission", "Readmission of children with asthma", "parallel", {"classical": 2.0}, 5.0, _ENDED),
    ):
        study_settings = seeded.settings(
            scheme, rounds=120, epsilons=epsilons, noise=noise, hospitals=len(states.HOSPITALS)
        )
        states.open_study(coordinator, name, title, study_settings)
        seeded.write(coordinator, name, past)
    plain = seeded.settings("parallel", rounds=60, epsilons={"classical": 4.0}, noise=4.0, hospitals=5)
    for name, title in (("diabetes-retina", "Diabetic retinopathy, second reading"), ("falls", "Falls on the ward")):
        states.open_study(coordinator, name, title, plain)
    seeded.write(coordinator, "falls", seeded.History(12, open=False))
    states.must(coordinator, "POST", "/v1/studies/falls/pause")
    # The budget of one is used: the worker ends it.
    coordinator.work()


_RUNNING = seeded.History(46, dict.fromkeys((19, 20, 21, 34), "too-few-clients"))
_JOINT = seeded.History(60, {7: "too-few-keys"})
_ENDED = seeded.History(120, open=False)


@contextmanager
def opened(browser: Browser, coordinator: Live, size: tuple[int, int], theme: Any) -> Iterator[Page]:
    """A tab of this size and theme that has the viewer's key."""
    context = browser.new_context(
        base_url=coordinator.url,
        viewport={"width": size[0], "height": size[1]},
        color_scheme=theme,
        reduced_motion="reduce",
        device_scale_factor=1,
    )
    page = context.new_page()
    page.clock.set_fixed_time(NOW)
    page.on("console", lambda line: print(line.text) if line.type in ("error", "warning") else None)
    page.goto("/dashboard")
    page.get_by_label("Viewer's key").fill(coordinator.viewer_key)
    page.get_by_role("button", name="Show").click()
    page.locator("#list table, #list .empty").first.wait_for()
    yield page
    context.close()


def settled(page: Page) -> None:
    """Until numbers and charts are there."""
    page.locator("#rounds table, #rounds .empty, .notice.bad").first.wait_for()
    settled_charts(page)


def ready(page: Page) -> None:
    """Until the part that the address names is there."""
    fragment = page.url.partition("#")[2]
    question = "#question .badge, #question .empty:has-text('no question')"
    parts = {
        "": "#list table, #rounds table, #rounds .empty, .notice.bad, h1:has-text('No such')",
        "questions": "#questions",
        "synthesis": "#compared .pair, #compared .chart, #compared .empty",
    }
    page.locator(parts.get(fragment, question)).first.wait_for()


def settled_charts(page: Page) -> None:
    """Until charts are there."""
    for chart in page.locator(".chart:visible").all():
        chart.locator("svg").wait_for()


def take(page: Page, to: Path, *, whole: bool = True, colours: int | None = COLOURS) -> None:
    """The page, or what its window shows of it, in so many colours. None: in all of them."""
    if not whole:
        _save(page.screenshot(), to, colours)
        return
    # A window as high as the page: what is out of sight is not drawn.
    before = page.viewport_size or {"width": DESK[0], "height": DESK[1]}
    page.set_viewport_size({"width": before["width"], "height": page.evaluate("document.documentElement.scrollHeight")})
    page.wait_for_timeout(300)
    height = page.evaluate("document.querySelector('main').getBoundingClientRect().bottom")
    page.set_viewport_size({"width": before["width"], "height": max(round(height), before["height"])})
    _save(page.screenshot(), to, colours)
    page.set_viewport_size(before)


def _save(picture: bytes, to: Path, colours: int | None = COLOURS) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if colours is None:
        to.write_bytes(picture)
        return
    small = Image.open(BytesIO(picture)).convert("RGB").quantize(colors=colours, dither=Image.Dither.NONE)
    small.save(to, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--to", type=Path, default=Path("docs/screenshots"))
    parser.add_argument("--every", type=Path, help="a folder for pictures of every page and state")
    parser.add_argument("--rounds", type=int, nargs="*", default=states.ROUNDS, help="of the studies that train")
    parser.add_argument("--only", help="a regular expression of the pages' names")
    options = parser.parse_args()
    if options.every is not None:
        take_every(options.every, options.rounds, re.compile(options.only or ""))
        return
    to: Path = options.to
    with still() as coordinator, sync_playwright() as playwright:
        seed(coordinator)
        pages = states.seed_questions(coordinator, {"survival": states.SURVIVAL})
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for name, size in (("desk", DESK), ("phone", PHONE)):
            for theme in ("light", "dark"):
                with opened(browser, coordinator, size, theme) as page:
                    _take_all(page, to, f"{name}-{theme}")
        _take_key(browser, coordinator, to)
        with opened(browser, coordinator, DESK, "light") as page:
            page.goto(pages["question-survival"])
            ready(page)
            settled_charts(page)
            _save(page.locator("#answer article").first.screenshot(), to / "survival.png")
        browser.close()


def take_every(to: Path, rounds: Sequence[int], only: re.Pattern[str]) -> None:
    """Take every page and state, and print the faults of their layout."""
    with still() as empty, still() as coordinator:
        pages = states.seed_questions(coordinator) | states.seed_evaluations(coordinator)
        pages |= states.seed_synthesis(coordinator) | states.seed_distances(coordinator)
        pages |= states.seed_states(coordinator) | states.seed_rounds(coordinator, rounds)
        addresses = {name: address for name, address in pages.items() if only.search(name)}
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            for device, size in (("desk", DESK), ("phone", PHONE)):
                for theme in ("light", "dark"):
                    if only.search("no-study"):
                        with opened(browser, empty, size, theme) as page:
                            take(page, to / f"no-study-{device}-{theme}.png", colours=None)
                    with opened(browser, coordinator, size, theme) as page:
                        for name, address in addresses.items():
                            _take_state(page, address, to / f"{name}-{device}-{theme}.png", phone=device == "phone")
            browser.close()


def _take_state(page: Page, address: str, picture: Path, *, phone: bool) -> None:
    # Also where the address differs in its fragment alone.
    page.goto("about:blank")
    page.goto(address)
    ready(page)
    settled_charts(page)
    for summary in page.locator("summary:visible").all():
        summary.click()
    take(page, picture, colours=None)
    for fault in page_layout.faults(page, phone=phone):
        print(f"{picture.stem}: {fault}", flush=True)


def _take_all(page: Page, to: Path, kind: str) -> None:
    take(page, to / f"studies-{kind}.png")
    page.goto("/dashboard/icu-sepsis")
    settled(page)
    # The whole page once for each size; of the other theme its beginning says enough.
    take(page, to / f"study-{kind}.png", whole=kind.endswith("light"))
    if kind != "desk-light":
        return
    page.get_by_role("button", name="Check the ledger").click()
    page.locator("#proof .notice").wait_for()
    _save(page.locator("#proof").screenshot(), to / "proof.png")
    page.goto("/dashboard/stroke-imaging")
    settled(page)
    _save(page.locator("#loss").screenshot(), to / "both-levels.png")


def _take_key(browser: Browser, coordinator: Live, to: Path) -> None:
    page = browser.new_page(base_url=coordinator.url, viewport={"width": DESK[0], "height": 640}, color_scheme="light")
    page.goto("/dashboard")
    page.get_by_label("Viewer's key").wait_for()
    take(page, to / "key-desk-light.png")
    page.close()


if __name__ == "__main__":
    main()
