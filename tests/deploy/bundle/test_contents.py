"""What goes into a bundle, and the wheels that do not."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from deploy.bundle.contents import (
    ROOT,
    copy_documents,
    find_builder,
    installed_bytes,
    needed_glibc,
    parse_extras,
    read_wheel_name,
    read_wheels,
    save_images,
    verify_lock,
    write_components,
    write_lock,
)
from deploy.bundle.installer import BundleError
from tests.factories.bundles import tiny_wheel, tiny_wheels

TORCH = "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl"
BUILDER = '#!/bin/sh\necho "$*" >> "$0.log"\n[ "$1" != "$REFUSED" ]\n'


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    return tiny_wheels(tmp_path / "wheels")


def test_extras_are_those_of_the_project() -> None:
    assert parse_extras("sources, client,,client") == ["client", "sources"]
    assert parse_extras("") == []
    with pytest.raises(BundleError, match="There is no extra 'hospital': choose from protocol, cli, "):
        parse_extras("client,hospital")


def test_a_wheel_s_name_is_read_in_canonical_form() -> None:
    wheel = read_wheel_name(Path("Backports.tar_file-1.2+cpu-1-py3-none-manylinux_2_17_x86_64.whl"))
    assert wheel[1:] == ("backports-tar-file", "1.2+cpu", "manylinux_2_17_x86_64")


def test_wheels_of_one_installation_are_accepted(wheels: Path) -> None:
    assert [wheel.name for wheel in read_wheels(wheels)] == ["pip", "wardhelper", "wardround"]


@pytest.mark.parametrize("pattern", ["wardround-*.whl", "pip-*.whl"])
def test_a_folder_without_the_program_or_pip_is_refused(wheels: Path, pattern: str) -> None:
    next(wheels.glob(pattern)).unlink()
    with pytest.raises(BundleError, match=rf"has no wheel of {pattern.partition('-')[0]}: add it"):
        read_wheels(wheels)


def test_two_wheels_of_a_package_are_refused(wheels: Path) -> None:
    tiny_wheel(wheels, "wardhelper", "2.1", "")
    with pytest.raises(BundleError, match="has 2 wheels of wardhelper"):
        read_wheels(wheels)


def test_torch_for_gpus_is_refused(wheels: Path) -> None:
    (wheels / TORCH.replace("2.13.0", "2.13.0+cpu")).touch()
    assert "torch" in [wheel.name for wheel in read_wheels(wheels)]
    for version in ("2.13.0", "2.13.0+cu130"):
        for torch in wheels.glob("torch*"):
            torch.unlink()
        (wheels / TORCH.replace("2.13.0", version)).touch()
        with pytest.raises(BundleError, match="torch for GPUs: set PIP_EXTRA_INDEX_URL"):
            read_wheels(wheels)


def test_a_wheel_that_differs_from_the_images_lock_is_refused(wheels: Path) -> None:
    name, version = re.findall(r"^(h11)==(\S+)", (ROOT / "deploy" / "locks" / "client.txt").read_text(), re.M)[0]
    tiny_wheel(wheels, name, version, "")
    with pytest.raises(BundleError, match=rf"^h11-{version}-py3-none-any\.whl has another hash than deploy/locks"):
        read_wheels(wheels)


def test_the_lock_has_every_wheel_with_its_hash(wheels: Path, tmp_path: Path) -> None:
    write_lock(read_wheels(wheels), ["client"], tmp_path)
    lines = (tmp_path / "requirements.lock").read_text().splitlines()
    assert [line.partition("==")[0] for line in lines] == ["pip", "wardhelper", "wardround[client]"]
    assert all(re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)


@pytest.mark.slow
def test_a_requirement_without_a_wheel_is_named(wheels: Path, tmp_path: Path) -> None:
    next(wheels.glob("wardhelper-*")).unlink()
    shutil.copytree(wheels, tmp_path / "bundle" / "wheels")
    write_lock(read_wheels(wheels), ["client"], tmp_path / "bundle")
    with pytest.raises(BundleError, match=r"^The wheels do not install together: .*wardhelper"):
        verify_lock(tmp_path / "bundle")


def test_the_space_is_that_of_unpacked_files_and_their_byte_code(tmp_path: Path) -> None:
    small = read_wheel_name(tiny_wheel(tmp_path, "small", "1", ""))
    large = read_wheel_name(tiny_wheel(tmp_path, "large", "1", "#" * 1_000_000))
    assert 2_000_000 <= installed_bytes([large]) - installed_bytes([small]) <= 2_000_100


def test_the_c_library_is_the_newest_of_the_oldest_that_each_wheel_takes() -> None:
    tags = ("manylinux2014_x86_64.manylinux_2_17_x86_64", "manylinux_2_27_x86_64.manylinux_2_28_x86_64", "any")
    wheels = [read_wheel_name(Path(f"a-1-py3-none-{tag}.whl")) for tag in tags]
    assert needed_glibc(wheels) == "2.27"
    assert needed_glibc(wheels[:1]) == "2.17"
    assert needed_glibc(wheels[2:]) is None


def test_components_need_the_tool(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is missing: run `make bundle`"):
        write_components(tmp_path / "cyclonedx-py", tmp_path)


def test_a_built_site_is_copied_and_otherwise_the_pages_with_the_root_s(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"has no index\.html and no index\.md"):
        copy_documents(tmp_path, tmp_path / "none")
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("<p>")
    assert copy_documents(site, tmp_path / "first") == "HTML"
    assert (tmp_path / "first" / "documents" / "index.html").read_text() == "<p>"
    assert copy_documents(ROOT / "docs", tmp_path / "second") == "Markdown"
    pages = tmp_path / "second" / "documents"
    assert (pages / "docs" / "hospital.md").is_file()
    assert (pages / "SECURITY.md").is_file()


@pytest.mark.parametrize("name", ["docker", "podman", "buildah"])
def test_images_come_from_the_builder_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    assert find_builder() is None
    # A program without its service answers `info` with an error.
    (programs / name).write_text("#!/bin/sh\nexit 1\n")
    (programs / name).chmod(0o755)
    assert find_builder() is None
    (programs / name).write_text(BUILDER)
    assert find_builder() == name
    paths = save_images(name, ["client", "server", "sources"], "1.0", tmp_path)
    assert paths == ["image/client.tar", "image/server.tar"]
    calls = (programs / f"{name}.log").read_text().splitlines()[1:]
    assert calls[0] == f"build --target client --tag wardround-client:1.0 {ROOT}"
    assert calls[1].split()[0] == ("push" if name == "buildah" else "save")
    assert f"{tmp_path}/image/client.tar" in calls[1]
    assert len(calls) == 4


@pytest.mark.parametrize("refused", ["build", "save"])
def test_a_builder_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    (tmp_path / "docker").write_text(BUILDER)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("REFUSED", refused)
    with pytest.raises(BundleError, match=r"docker failed.*--no-image"):
        save_images("docker", ["client"], "1.0", tmp_path)
