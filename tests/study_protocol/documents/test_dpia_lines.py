"""Lines of an impact assessment and a record of processing: every point of the Regulation has an answer or a mark."""

from __future__ import annotations

from study_protocol.documents.dpia_lines import ASSESSMENT, RECORD
from tests.factories.certificates import ONE
from tests.study_protocol.documents.test_dpia import text


def test_every_point_of_the_regulation_has_a_line_with_an_answer_or_a_mark() -> None:
    articles = [line.name for line in (*ASSESSMENT, *RECORD)]
    points = [f"35(7)({letter})" for letter in "abcd"] + ["35(2)", "35(8)", "35(9)", "35(11)", "36(1)"]
    points += [f"30(1)({letter})" for letter in "abcdefg"]
    assert set(articles) == set(points)
    # WP 248 rev.01, Annex 2: five on the description, ten on necessity, three risks.
    assert [articles.count(f"35(7)({letter})") for letter in "abc"] == [5, 10, 3]
    for line in (*ASSESSMENT, *RECORD):
        answer = line.answer(ONE.certificate)
        assert line.importance == "mandatory"
        assert answer.text or answer.yours
    assert text(ONE).count("Yours:") >= len(RECORD)
