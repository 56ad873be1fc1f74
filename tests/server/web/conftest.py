"""A coordinator with studies in every state that a page can show, and tabs that tell what a policy forbade."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import pytest
from playwright.sync_api import sync_playwright

from study_protocol.wire.tensors import encode
from tests.factories.hospital_double import MODEL
from tests.factories.live_coordinator import Live, live
from tests.harness import seeded_studies as seeded

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Nothing but the page under test: no sandbox for containers, no calls of the browser's own.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"
WATCH = "addEventListener('securitypolicyviolation', (e) => console.error('policy', e.violatedDirective, e.blockedURI))"
BOTH = {"bayesian": 3.0, "classical": 8.0}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One coordinator for each file: what is clicked in one is not seen by another."""
    with three_studies(tmp_path_factory) as coordinator:
        yield coordinator


@pytest.fixture(scope="session")
def without_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One coordinator for all files that open no browser."""
    with three_studies(tmp_path_factory) as coordinator:
        yield coordinator


@contextmanager
def three_studies(tmp_path_factory: pytest.TempPathFactory) -> Generator[Live]:
    """`ward` runs, with abandoned rounds; `ended` has used its budget; `young` enrols, under a hostile title."""
    with live(tmp_path_factory.mktemp("home")) as coordinator:
        open_study(coordinator, "ward", "Sepsis on the ward", epsilons=BOTH)
        past = dict.fromkeys((5, 6, 7), "too-few-clients")
        seeded.write(coordinator, "ward", seeded.History(30, past))
        open_study(coordinator, "ended", "A study that has ended", epsilons={"classical": 1.6})
        seeded.write(coordinator, "ended", seeded.History(60, open=False))
        coordinator.work()
        open_study(coordinator, "young", HOSTILE, epsilons=BOTH, scheme="joint")
        yield coordinator


def open_study(
    here: Live, name: str, title: str, *, epsilons: dict[str, float], scheme: str = "parallel", rounds: int = 120
) -> None:
    chosen = seeded.settings(scheme, rounds=rounds, epsilons=epsilons, noise=4.0, hospitals=5)
    wanted = {"study": name, "title": title, "settings": chosen.as_json()}
    assert here.operator("POST", "/v1/studies", json=wanted).status_code == 201
    assert here.operator("PUT", f"/v1/studies/{name}/models/0", content=encode(MODEL)).status_code == 201
    for hospital in ("coast", "hill", "lake", "valley", "wood"):
        here.enrol(name, hospital)


@dataclass
class Tabs:
    """Opens tabs that have the viewer's key, and collects whatever goes wrong in any of them.

    allowed  beginnings of addresses elsewhere that a test sends its tabs to
    """

    browser: Any
    here: Live
    problems: list[str] = field(default_factory=list[str])
    addresses: list[str] = field(default_factory=list[str])
    allowed: tuple[str, ...] = ()
    _contexts: list[Any] = field(default_factory=list[Any])

    def blank(self, *, phone: bool = False, theme: str = "light", **options: Any) -> Any:
        size = {"width": 390, "height": 844} if phone else {"width": 1280, "height": 900}
        context = self.browser.new_context(
            base_url=self.here.url, viewport=size, color_scheme=theme, reduced_motion="reduce", **options
        )
        self._contexts.append(context)
        context.add_init_script(WATCH)
        page = context.new_page()
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._said)
        page.on("request", lambda request: self.addresses.append(request.url))
        return page

    def _said(self, line: Any) -> None:
        # What the coordinator refuses is said by the page, and by the browser once more.
        if line.type in ("error", "warning") and not line.text.startswith("Failed to load resource"):
            self.problems.append(line.text)

    def open(self, path: str, **options: Any) -> Any:
        page = self.blank(**options)
        page.goto("/dashboard")
        page.get_by_label("Viewer's key").fill(self.here.viewer_key)
        page.get_by_role("button", name="Show").click()
        page.locator("#list table").wait_for()
        if path != "/dashboard":
            page.goto(path)
            page.locator("#page h1").wait_for()
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()


def without_chromium(environment: Mapping[str, str]) -> NoReturn:
    """Skip the test. Where CI is `true`, as every service for continuous integration sets it, fail instead."""
    if environment.get("CI") == "true":
        pytest.fail("no Chromium on this machine, and CI=true: the tests in a browser must run here")
    pytest.skip("no Chromium on this machine")


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    if CHROMIUM is None:
        without_chromium(os.environ)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def tabs(chromium: object, here: Live) -> Iterator[Tabs]:
    """After the test: no error, no warning, no violation of the policy, nothing asked of another host, no key told."""
    opened = Tabs(chromium, here)
    yield opened
    opened.close()
    assert opened.problems == []
    assert [url for url in opened.addresses if not url.startswith((here.url, "data:", "blob:", *opened.allowed))] == []
    assert not any(here.viewer_key in url or "wrk_" in url for url in opened.addresses)
