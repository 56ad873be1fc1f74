"""What each extra takes on the disk: python -m research.benchmarks.installed_sizes [--extras operator client]

A fresh virtual environment for each extra, from constraints.txt, as `pip install` leaves it, byte code included; what
is in an empty one is taken off. torch is installed first, from where pip finds it or from `--torch-index`, and its
version is recorded: the builds for CPU and for GPU differ by gigabytes.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results" / "installed_sizes.json"
# "": no extra, the accountants alone.
EXTRAS = (
    *("", "protocol", "cli", "operator", "learning", "client", "server", "objects", "traces"),
    *("documents", "frames", "export", "parquet", "images", "imaging", "simulation", "ray", "demo", "test", "docs"),
)


def installed(extra: str, torch_index: str | None) -> dict[str, Any]:
    """Bytes of the files that the extra brings, the number of packages, and torch's version where it is among them."""
    with tempfile.TemporaryDirectory(prefix="wardround-size-") as folder:
        home = Path(folder)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        python = home / "bin" / "python"
        (packages,) = home.glob("lib/python*/site-packages")
        empty = size_of(packages)
        install = [str(python), "-m", "pip", "install", "--quiet", "--constraint", str(ROOT / "constraints.txt")]
        index = [] if torch_index is None else ["--index-url", torch_index]
        if needs_torch(install, extra):
            subprocess.run([*install, *index, "torch"], check=True)
        subprocess.run([*install, f"{ROOT}[{extra}]" if extra else str(ROOT)], check=True)
        listed = json.loads(_out([str(python), "-m", "pip", "list", "--format=json"]))
        versions = {package["name"]: package["version"] for package in listed}
        return {
            "bytes": size_of(packages) - empty,
            # Without pip and setuptools, which an empty environment has, and ours.
            "packages": len(set(versions) - {"pip", "setuptools", "wardround"}),
            "torch": versions.get("torch"),
        }


def needs_torch(install: list[str], extra: str) -> bool:
    """Whether pip would bring torch with the extra."""
    report = _out([*install, "--dry-run", "--report", "-", f"{ROOT}[{extra}]" if extra else str(ROOT)])
    return any(package["metadata"]["name"] == "torch" for package in json.loads(report)["install"])


def size_of(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _out(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--extras", nargs="+", default=EXTRAS, choices=EXTRAS)
    parser.add_argument("--torch-index", help="the package index of a build of torch; left out: pip's own")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"extras": {}}
    results |= {"machine": platform.machine(), "system": platform.system(), "python": platform.python_version()}
    for extra in options.extras:
        extra_sizes = results["extras"][extra or "none"] = installed(extra, options.torch_index)
        print(
            f"{extra or 'none':10} {extra_sizes['bytes'] / 1e6:8.0f} MB  {extra_sizes['packages']:4} packages",
            flush=True,
        )
        # After each: a run that is interrupted keeps what it has measured.
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
