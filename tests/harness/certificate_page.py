"""The first page of a certificate as a picture: a study by `plan --suggest` that has done all its rounds.

    python -m tests.harness.certificate_page docs/figures/certificate.png

Models and signatures are made up. Settings, accounts and layout are those of every study.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

import typst
from PIL import Image

from accounting.budget.budget import Budget
from accounting.budget.ledger import Entry, append, digest
from study_protocol.documents import pdf, pdf_content
from study_protocol.documents.certify import Facts, compute_account, issue_certificate, mean_of, result_rounds
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import LEDGER_HEAD, sign_document
from tests.factories.certificates import KEY, PUBLIC, WHEN, sealed
from tests.factories.ledgers import after, standing
from wardround.cli.shared.settings_file import read_settings
from wardround.demo.processes import WARDROUND

HOSPITALS, ROUNDS, COLOURS = 4, 30, 48
NUMBERS = ("--patients", "100", "--hospitals", str(HOSPITALS), "--columns", "8", "--rounds", str(ROUNDS))
BUDGET = ("--epsilon", "2", "--delta", "1e-4", "--questions", "0.1", "--masked")


def suggested() -> StudySettings:
    """The settings that the command writes for these numbers."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.toml"
        words = [*WARDROUND, "plan", "--suggest", *NUMBERS, *BUDGET, "-o", str(path)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        return read_settings(path)


def ledger(settings: StudySettings) -> list[Entry]:
    """All rounds, each with a released model."""
    values, plan = settings.as_json(), plan_of(settings)
    body = {"study": "sepsis", "settings": values, "plan": plan.to_dict()}
    entries = [append(None, "opened", None, body | standing(Budget(plan), digest(values), members=HOSPITALS))]
    entries.append(after(entries, "released", sha256=_digest(0), bytes=400))
    for number in range(1, ROUNDS + 1):
        entries.append(after(entries, "reserved", number))
        entries.append(after(entries, "settled", number, report=None))
        entries.append(after(entries, "released", number, sha256=_digest(number), bytes=400))
    return entries


def _digest(number: int) -> str:
    return hashlib.sha256(f"model {number}".encode()).hexdigest()


def main() -> None:
    settings = suggested()
    account = compute_account(ledger(settings))
    head = {"study": "sepsis", "entries": account.entries, "sha256": account.sha256}
    mean = mean_of(result_rounds(settings, range(1, ROUNDS + 1)), _digest(ROUNDS + 1), 400)
    facts = Facts("Sepsis", "running", None, WHEN, PUBLIC, sign_document(KEY, LEDGER_HEAD, head), None, mean)
    document = sealed(issue_certificate(account, facts).model_dump(mode="json"))
    inputs: dict[str, str] = pdf._as_input(pdf_content._data(document), None)
    layout = Path(pdf.__file__).with_name("layout")
    pages: Any = typst.compile(
        layout / "certificate.typ", root=layout, sys_inputs=inputs, ignore_system_fonts=True, format="png", ppi=72
    )
    first = Image.open(BytesIO(pages[0] if isinstance(pages, list) else pages)).convert("RGB")
    first.quantize(colors=COLOURS, dither=Image.Dither.NONE).save(sys.argv[1], optimize=True)


if __name__ == "__main__":
    main()
