import subprocess
import sys

import pytest

import client_sdk


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_package_and_the_protocol_load_neither_torch_nor_http() -> None:
    program = """
import importlib, pkgutil, sys
import client_sdk, study_protocol
for module in pkgutil.walk_packages(study_protocol.__path__, "study_protocol."):
    importlib.import_module(module.name)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "httpx", "httpcore", "requests", "typer"}))
"""
    assert run(program) == "[]"


def test_a_command_that_only_shows_help_loads_neither() -> None:
    program = """
import sys
from wardround.cli.main import build
build()
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "httpx", "fastapi", "sqlalchemy"}))
"""
    assert run(program) == "[]"


def test_a_hospital_that_does_not_train_loads_no_torch() -> None:
    assert run("import sys, client_sdk.study.hospital; print('torch' in sys.modules)") == "False"


def test_one_file_alone_knows_the_http_library() -> None:
    root = client_sdk.__path__[0]
    found = run(f"""
import pathlib, re
files = pathlib.Path({root!r}).rglob("*.py")
print(sorted(f.name for f in files if re.search(r"^\\s*(import|from) httpx", f.read_text(), re.M)))
""")
    assert found == "['transport.py']"


@pytest.mark.slow
def test_a_missing_part_is_named_with_its_extra() -> None:
    program = """
import sys
sys.modules["httpx"] = None
sys.argv = ["wardround", "budget", "sepsis", "--server", "https://x", "--key-file", sys.argv[1]]
from wardround.cli.main import main
main()
"""
    key = "/dev/null"
    done = subprocess.run([sys.executable, "-c", program, key], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "wardround: this command needs more: pip install 'wardround[operator]'\n",
    )


@pytest.mark.slow
def test_a_private_step_loads_no_compiler() -> None:
    program = """
import sys, torch
from private_learning.gradients.layers import cross_entropy
from private_learning.gradients.model import PerRecordGradients
gradients = PerRecordGradients(torch.nn.Linear(3, 2), cross_entropy)
gradients.clipped_sum(torch.ones(2, 3), torch.zeros(2, dtype=torch.int64), clip_norm=1.0)
print(gradients.method, "torch._dynamo" in sys.modules)
"""
    assert run(program) == "layerwise False"
