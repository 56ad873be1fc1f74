"""Public names that load on first use, from a stub beside the module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from wardround.names import attach


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package `colours` whose stub names a class of another module, one under another name, and a module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    folder = tmp_path / "colours"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "from wardround.names import attach\n__getattr__, __dir__, __all__ = attach(__name__, __file__)\n"
    )
    (folder / "__init__.pyi").write_text(
        "from colour_shades import Red as Red\nfrom colour_shades import mix as _blend\nfrom . import deep as deep\n"
        "from no_such_library import Blue as Blue\n"
    )
    (folder / "deep.py").write_text("LEVEL = 3\n")
    (tmp_path / "colour_shades.py").write_text("class Red: ...\ndef mix(): return 'violet'\n")
    import colours  # type: ignore[import-not-found]

    yield colours
    for name in ("colours", "colours.deep", "colour_shades"):
        sys.modules.pop(name, None)


def test_a_name_is_imported_when_it_is_asked_for(package: ModuleType) -> None:
    assert dir(package) == package.__all__ == ["Blue", "Red", "blend", "deep"]
    assert "colour_shades" not in sys.modules
    assert package.Red is sys.modules["colour_shades"].Red
    # Found without the function from now on.
    assert "Red" in vars(package)
    assert package.blend() == "violet"
    assert package.deep.LEVEL == 3


def test_what_the_stub_does_not_name_is_no_attribute(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'colours' has no attribute 'mix'"):
        package.mix  # noqa: B018


def test_a_library_of_no_extra_is_named_by_the_import_itself(package: ModuleType) -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_library'"):
        package.Blue  # noqa: B018


def test_a_library_of_an_extra_is_named_with_it(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(str(package.__file__)).parent
    (folder / "__init__.pyi").write_text("from colour_shades import Red as Red\n")
    (folder.parent / "colour_shades.py").write_text("import torch\n")
    monkeypatch.setitem(sys.modules, "torch", None)
    get, _, names = attach("colours", str(package.__file__))
    assert names == ["Red"]
    with pytest.raises(ModuleNotFoundError, match=r"colours.Red needs torch: pip install 'wardround\["):
        get("Red")
