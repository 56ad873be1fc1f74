"""No shipped module reads a file in a way that can run code: every loader of that kind stands here with its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = (
    "accounting",
    "study_protocol",
    "private_learning",
    "synthesis",
    "client_sdk",
    "server",
    "simulation",
    "wardround",
    "migrations",
)
# Importing them is for reading or writing objects that run code.
MODULES = {
    *("pickle", "_pickle", "cPickle", "marshal", "shelve", "dbm", "dill", "cloudpickle", "joblib", "jsonpickle"),
    *("yaml", "ruamel", "runpy", "code", "codeop", "torchvision", "transformers", "skops", "sklearn", "keras"),
}
# Attributes by which one of these is called, whatever stands before them.
READERS = {
    *(
        "read_pickle",
        "to_pickle",
        "Unpickler",
        "Pickler",
        "load_state_dict_from_url",
        "unpickle",
        "memmap",
        "fromregex",
    ),
    *(
        "load_pt2",
        "load_library",
        "register_custom_ops_library",
        "load_class",
        "load_module",
        "exec_module",
        "load_source",
        "open_memmap",
    ),
}
# Attributes of these packages.
OF = {
    "torch": {"load", "jit", "hub", "package", "save", "classes"},
    "torch.export": {"load"},
    "np": {"load"},
    "numpy": {"load"},
}
NAMES = {"eval", "exec", "compile", "__import__", "execfile"}
# Looking a module up by a name that is not written there, and the object of an entry point: installed code.
LOOKED_UP = {"import_module", "entry_points"}
ARGUMENTS = {"allow_pickle": False, "weights_only": True}

ALLOWED = {
    ("client_sdk/released/export.py", "torch.export.load"): "reads back what it has just written, without its pickles",
    ("client_sdk/released/export.py", "torch.export"): "writes a program",
    ("client_sdk/released/records.py", "np.load"): "allow_pickle=False",
    ("private_learning/training/checkpoint.py", "torch.load"): "weights_only=True, of the hospital's own checkpoint",
    ("private_learning/training/checkpoint.py", "torch.save"): "writes the hospital's own checkpoint",
    ("private_learning/training/checkpoint.py", "pickle"): "the name of an error",
    ("private_learning/gradients/devices.py", "pickle"): "from the process that started this one",
    ("private_learning/records/workers.py", "pickle"): "from the process that started this one",
    ("wardround/demo/scenarios.py", "sklearn.datasets"): "records that scikit-learn brings, not a file of a study",
    ("private_learning/tasks/registry.py", "entry_points"): "tasks that are installed; the study gives a name",
    ("private_learning/tasks/on_module.py", "entry_points"): "modules that are installed; the study gives a name",
    ("wardround/cli/lazy.py", "import_module"): "names in the table of commands",
    ("simulation/backends/ray.py", "import_module"): "a name that is written there",
    ("accounting/mechanisms/interchange.py", "import_module"): "a name that is written there",
    ("client_sdk/released/export.py", "import_module"): "names that are written there",
    ("private_learning/tasks/curves.py", "import_module"): "a name that is written there",
    ("private_learning/tasks/program.py", "import_module"): "names that are written there",
    ("private_learning/records/dicom.py", "import_module"): "a name that is written there",
    ("synthesis/file.py", "import_module"): "names that are written there",
    ("wardround/tracking/mlflow_server.py", "import_module"): "names that are written there",
    ("wardround/flower/framework.py", "import_module"): "names that are written there",
    ("wardround/names.py", "import_module"): "names in the stub beside the module that asks",
}


def loaders(text: str) -> Iterator[str]:
    """What a module's text mentions of them, in calls or not: an alias is a mention, too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] in MODULES)
            yield from (alias.name for alias in node.names if alias.name in ("torch.jit", "torch.hub", "torch.package"))
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module.partition(".")[0] in MODULES:
                yield module
            for alias in node.names:
                if alias.name in OF.get(module, set()) | READERS or alias.name in LOOKED_UP:
                    yield alias.name if alias.name in LOOKED_UP else f"{module}.{alias.name}"
        elif isinstance(node, ast.Attribute):
            before = ast.unparse(node.value)
            if node.attr in OF.get(before, set()) | READERS:
                yield f"{before}.{node.attr}"
            elif before == "torch" and node.attr == "export":
                yield "torch.export"
            elif before == "importlib" and node.attr in LOOKED_UP:
                yield node.attr
        elif isinstance(node, ast.Name) and node.id in NAMES:
            yield node.id
        elif isinstance(node, ast.keyword) and node.arg in ARGUMENTS:
            if not (isinstance(node.value, ast.Constant) and node.value.value is ARGUMENTS[node.arg]):
                yield f"{node.arg}={ast.unparse(node.value)}"
        elif isinstance(node, ast.Call):
            # Left out, the default of an older version unpickles.
            bare = not any(each.arg in ARGUMENTS for each in node.keywords)
            if bare and ast.unparse(node.func) in ("np.load", "numpy.load", "torch.load"):
                yield f"{ast.unparse(node.func)} without {' or '.join(ARGUMENTS)}"


def mentioned() -> set[tuple[str, str]]:
    files = [path for folder in SHIPPED for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 300
    return {(str(path.relative_to(ROOT)), each) for path in files for each in loaders(path.read_text("utf-8"))}


def test_every_loader_that_could_run_code_is_known_with_its_reason() -> None:
    assert mentioned() - ALLOWED.keys() == set()


@pytest.mark.slow
def test_no_reason_is_left_for_a_loader_that_is_gone() -> None:
    assert ALLOWED.keys() - mentioned() == set()


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads as read",
        "import joblib; joblib.load(path)",
        "import yaml",
        "import pandas as pd; pd.read_pickle(path)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "from torch import load",
        "for kind in (torch.jit, torch.export): kind.load(path)",
        "import torch.jit as j; j.load(path)",
        "read = torch.export.load",
        "from torch.export import load as read",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=chosen)",
        "torch.hub.load(name, path)",
        "eval(text)",
        "run = exec",
        "importlib.import_module(name)",
        "__import__(name)",
        "np.lib.format.open_memmap(path)",
    ],
)
def test_a_module_that_loads_so_would_be_noticed(text: str) -> None:
    assert list(loaders(text))
