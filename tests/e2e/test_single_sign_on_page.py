"""The page on single sign-on, followed word for word with the provider that it names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import httpx
import pytest

from wardround.demo.processes import WARDROUND, Processes, environment, free_port, until

PAGE = (Path(__file__).parents[2] / "docs" / "single-sign-on.md").read_text()
pytestmark = pytest.mark.slow


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_page_leads_to_a_login(tmp_path: Path) -> None:
    section = PAGE.partition("## Try it without a provider")[2]
    start, settings = re.findall(r"^```\n(.*?)^```", section, re.M | re.S)
    (tmp_path / "grants.toml").write_text(re.findall(r"^```toml\n(.*?)^```", PAGE, re.M | re.S)[0])
    ports = {"9400": free_port(), "8000": free_port()}
    for page_port, port in ports.items():
        start, settings = start.replace(page_port, str(port)), settings.replace(page_port, str(port))
    issuer, here = f"http://localhost:{ports['9400']}", f"http://127.0.0.1:{ports['8000']}"
    programs = Path(WARDROUND[0]).parent
    more = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "WARDROUND_HOME": str(tmp_path / "home")}
    given = environment() | more | {"WARDROUND_PORT": str(ports["8000"]), "WARDROUND_ORIGIN": here}

    def answers(address: str) -> bool:
        try:
            return httpx.get(address, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    with Processes() as processes:
        provider = processes.start("provider", start.split(), env=given, log=tmp_path / "provider.log")
        assert until(lambda: answers(f"{issuer}/.well-known/openid-configuration"), seconds=60, check=provider.check)
        # The last command goes on until the end.
        before, serve = settings.rstrip().rsplit("\n", 1)
        exported = f"{before}\nenv -0 > variables"
        subprocess.run(["bash", "-ec", exported], cwd=tmp_path, env=given, check=True, capture_output=True)
        variables = dict(each.split("=", 1) for each in (tmp_path / "variables").read_text().split("\0") if each)
        variables["WARDROUND_SSO_GRANTS"] = str(tmp_path / variables["WARDROUND_SSO_GRANTS"])
        coordinator = processes.start("coordinator", serve.split(), env=variables, log=tmp_path / "coordinator.log")
        assert until(lambda: answers(f"{here}/readyz"), seconds=60, check=coordinator.check)
        _log_in(here)


def _log_in(here: str) -> None:
    with httpx.Client(trust_env=False) as browser:
        begun = browser.get(f"{here}/login?to=/dashboard")
        cookies = {"Cookie": begun.headers["Set-Cookie"].partition(";")[0]}
        agreed = browser.post(begun.headers["Location"], data={"sub": "ada"})
        # httpx sends no Secure cookie over http, as browsers do on this machine.
        back = browser.get(agreed.headers["Location"], headers=cookies)
        assert (back.status_code, back.headers["Location"]) == (303, "/dashboard")
        session = back.headers["Set-Cookie"].partition(";")[0]
        person = browser.get(f"{here}/v1/person", headers={"Cookie": session}).json()
        assert (person["name"], person["grants"]) == ("Ada Example", [{"role": "auditor", "study": None}])
