"""The code of the how-to runs on files that `wardround synth` writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from study_protocol.study.queries import SignedAnswer
from study_protocol.wire.signing import QUERY_ANSWER, sign_document
from synthesis.file import made, path_of_set, write
from synthesis.rule import next_question
from tests.factories.signed_answers import KEY, PUBLIC
from tests.factories.synthesis import answered, section

PAGE = Path(__file__).parents[2] / "docs" / "synthesis-how-to.md"


def test_a_model_is_fitted_with_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = [
        {"column": "age", "edges": [40, 60, 80]},
        {"column": "sex", "categories": ["female", "male"]},
        {"column": "died", "categories": ["no", "yes"]},
    ]
    synthesis, signed = section(rows=1500, columns=columns, outcome="died"), list[SignedAnswer]()
    while (document := next_question(synthesis, [answer.published for answer in signed])) is not None:
        published = answered(document, 6000, 1, 2.0)
        signature = sign_document(KEY, QUERY_ANSWER, published.model_dump(mode="json"))
        signed.append(SignedAnswer(published=published, signature=signature))
    for number in (1, 2, 3):
        records = made("registry", "a" * 64, synthesis, signed, PUBLIC, None, number)
        write(path_of_set(tmp_path / "synthetic.parquet", number), records)
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    assert len(code) == 1
    exec(code[0], {})
    assert len(re.findall(r"\[.*?\]", capsys.readouterr().out)) == 3
