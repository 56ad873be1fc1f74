"""The figures of names and prose, on texts that are counted by hand."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from research.quality.language import commits, figures, limited, prose, sentences

SOURCE = '''"""Load tables. Nobody reads; nobody writes them here."""

class Table:
    """A table of the hospital."""

    def read(self, filter, *rest, min_rows, most_rows=1):
        found, self.shown = filter, rest
        found_rows = [one for one in found]
        return found_rows


class Empty:
    least_size = 0
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    texts = {
        "accounting/table.py": SOURCE,
        "experiments/other.py": "class Table: pass\n",
        "tests/test_table.py": "found = 1\nclass Empty: pass\n",
        "docs/reference/commands.py": "found = 1\n",
        ".venv/lib/module.py": "found = 1\n",
        "docs/page.md": "# A heading of four words; or five\n\nThe page has one sentence.\n",
        "docs/deep/page.md": "Who reads this page is known; nothing else is.\n",
        "README.md": "Read the pages in the folder docs.\n",
        "CONTRIBUTING.md": "Everybody may change the pages here.\n",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_bindings_are_what_a_name_is_given_to(tree: Path) -> None:
    # Table, read, filter, min_rows, most_rows, found, shown, found_rows, one, Empty, least_size; and the other Table.
    # Neither `self` nor the parameter with a star counts. Of these, found, shown and one are bare.
    measured = figures(tree)
    assert measured["bindings"] == 12
    assert measured["bare_names"] == 250.0
    assert measured["superlatives"] == round(1000 * 2 / 12, 1)


def test_a_parameter_shadows_a_builtin_and_a_class_has_two_meanings(tree: Path) -> None:
    measured = figures(tree)
    assert (measured["shadowed"], measured["ambiguous"]) == (1, 1)


def test_pages_are_those_of_the_documents_and_two_of_the_root(tree: Path) -> None:
    # 5 + 9 + 7 + 6 words in four sentences. The heading is none of them.
    assert figures(tree)["docs"] == {
        "sentences": 4,
        "semicolon_percent": 25.0,
        "whoever_nobody_per_1000_words": round(1000 * 2 / 27, 2),
        "clause_subject_percent": 50.0,
        "median_words": 6.5,
        "p90_words": 7,
    }


def test_docstrings_of_modules_classes_and_functions_are_prose(tree: Path) -> None:
    # "Load tables." is too short for a sentence.
    measured = figures(tree)["docstrings"]
    assert (measured["sentences"], measured["semicolon_percent"]) == (2, 50.0)
    assert measured["whoever_nobody_per_1000_words"] == round(1000 * 2 / (6 + 5), 2)


def test_words_are_counted_as_wc_counts_them(tree: Path) -> None:
    # The heading has 8 with its mark. CONTRIBUTING.md is no page of the documents.
    assert figures(tree)["page_words"] == {"all": 13 + 9 + 7, "per_page": round(29 / 3, 1), "max": 13}


def test_code_tables_and_links_are_no_prose() -> None:
    text = (
        "A [link; of ours](https://example.org/;) stays here; see `a; b`.\n\n"
        "| a cell; of four words | x |\n\n```\nlet code; be code; of many words\n```\n\n"
        "1. First item of the list. Second sentence of it.\n- Another item <b>of</b> the list\n"
    )
    assert list(sentences(text)) == [
        "A link; of ours stays here; see X.",
        "First item of the list.",
        "Second sentence of it.",
        "Another item of the list",
    ]


def test_figures_of_an_empty_tree_are_zero(tmp_path: Path) -> None:
    assert set(prose([]).values()) == {0}
    assert set(limited(figures(tmp_path)).values()) == {0}


def test_commits_tell_their_reasons(tmp_path: Path) -> None:
    assert commits(tmp_path) == {}

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "Begin")
    git("commit", "-q", "--allow-empty", "-m", "Add a page", "-m", "The page was missing.")
    assert commits(tmp_path) == {"with_body_percent": 50, "median_subject": 7.5}
