"""What a coordinator or another hospital writes reaches a person's terminal as text, and as nothing else."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from client_sdk.errors import SessionEnded, api_error
from study_protocol.study.messages import Problem
from tests.factories.commands import Run, opened
from tests.factories.live_coordinator import Live
from wardround.cli.shared.shared import PlainLines, print_json, table

# Clears the screen, writes into the title and the clipboard, hides what follows, turns the line around.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil[/nothing][link=file:///etc]x"
OBEYED = ("\x1b", "\x07", "\x9b", "\u202e")


def problem(detail: str) -> Problem:
    return Problem.model_construct(
        type="about:blank",
        title=HOSTILE,
        status=409,
        code="study-exists",
        detail=detail,
        request_id=HOSTILE,
    )


class Liar(BaseHTTPRequestHandler):
    """Answers everything with a problem document full of commands."""

    def do_GET(self) -> None:
        body = json.dumps(problem(HOSTILE).model_dump(exclude_none=True)).encode()
        self.send_response(409)
        self.send_header("Content-Type", "application/problem+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def liar() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Liar)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_a_coordinator_that_answers_with_commands(run: Run, here: Live, liar: str) -> None:
    said = run("study", "list", "--server", liar, operator=True, code=1)
    assert said.stderr.startswith("wardround: ")
    assert not any(character in said.output for character in OBEYED)


@pytest.mark.slow
def test_a_refusal_s_brackets_are_shown_as_they_are(run: Run, here: Live, tmp_path: Path) -> None:
    opened(run, tmp_path)
    other = here.enrol("sepsis", "county")
    run("study", "start", "sepsis", operator=True)
    here.work()
    assert other.assignment() is not None
    path = "/v1/studies/sepsis/rounds/1/refusals/county"
    body = json.dumps({"code": "own-limit", "detail": "[red]no[/nothing]"}).encode()
    assert here.signed(other, "PUT", path, body).status_code == 201
    assert "county: [red]no[/nothing]" in run("study", "rounds", "sepsis", operator=True).stdout


def test_tables_logs_errors_and_json_hold_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    table(HOSTILE, ["one"], [[HOSTILE]])
    table("", ["one"], [[HOSTILE]], to_errors=True)
    print_json({"title": HOSTILE})
    printed = capsys.readouterr()
    assert "evil[/nothing][link=file:///etc]x" in printed.out
    assert json.loads(printed.out[printed.out.index("{") :]) == {"title": HOSTILE}
    record = logging.LogRecord("client_sdk", logging.WARNING, __file__, 1, "round %d: %s", (1, HOSTILE), None)
    assert PlainLines().filter(record)
    errors = [str(api_error(problem(HOSTILE))), api_error(problem(HOSTILE)).detail, str(SessionEnded(HOSTILE))]
    for text in (printed.out, printed.err, record.getMessage(), *errors):
        assert not any(character in text for character in OBEYED)
