"""Make one signed archive that installs Wardround on machines without a network: `make bundle` runs this."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from deploy.bundle.archive import pack, read_key, sign_manifest, write_manifest
from deploy.bundle.contents import (
    ROOT,
    Wheel,
    build_wheels,
    copy_documents,
    find_builder,
    installed_bytes,
    needed_glibc,
    parse_extras,
    read_wheels,
    save_images,
    verify_lock,
    write_components,
    write_lock,
)
from deploy.bundle.installer import FORMAT, SIGNATURE, UNSIGNED, WHEELS, BundleError, file_digest, machine_facts

# What a hospital may need: training, databases with snapshots, and medical images.
HOSPITAL = "client,imaging,sources"


def make_bundle(options: argparse.Namespace) -> Path:
    """Make the archive and return its path.

    Raises:
        BundleError: an option, a wheel or a tool is not as it should be.
    """
    if (options.key is None) != options.unsigned:
        raise BundleError("Name the key that signs, with BUNDLE_KEY=path or --key, or else say --unsigned.")
    signer = UNSIGNED if options.key is None else read_key(options.key)
    extras = parse_extras(options.extras)
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bundle-", dir=options.output) as folder:
        bundle = Path(folder)
        (bundle / WHEELS).mkdir()
        if options.wheels is None:
            build_wheels(extras, bundle / WHEELS)
        elif not options.wheels.is_dir():
            raise BundleError(f"{options.wheels} is no folder: name one with wheels.")
        else:
            shutil.copytree(options.wheels, bundle / WHEELS, dirs_exist_ok=True)
        wheels = read_wheels(bundle / WHEELS)
        facts = _fill(bundle, wheels, extras, options)
        write_manifest(bundle, facts)
        if options.key is not None:
            sign_manifest(bundle, options.key)
        output = options.output / f"wardround-{facts['version']}-{facts['abi']}.tar"
        pack(bundle, output)
    print(f"{output}\nSHA-256: {file_digest(output)}\nSignature: {signer}")
    return output


def _fill(bundle: Path, wheels: Sequence[Wheel], extras: Sequence[str], options: argparse.Namespace) -> dict[str, str]:
    """Write everything but the manifest and return the facts of the manifest."""
    write_lock(wheels, extras, bundle)
    verify_lock(bundle)
    write_components(options.sbom_tool, bundle)
    source_folder = Path(__file__).parent
    shutil.copy(source_folder / "install.sh", bundle)
    shutil.copy(source_folder / "installer.py", bundle / "install.py")
    (version,) = (wheel.version for wheel in wheels if wheel.name == "wardround")
    documents = copy_documents(options.documents, bundle)
    builder = find_builder() if options.image else None
    reason = "no builder of images runs where the bundle was made" if options.image else "its maker left it out"
    images = save_images(builder, extras, version, bundle) if builder else [f"none, because {reason}"]
    glibc = needed_glibc(wheels)
    return {
        "format": FORMAT,
        "version": version,
        "commit": _commit(),
        "extras": ",".join(extras) or "none",
        **machine_facts(),
        **({"glibc": glibc} if glibc else {}),
        "installed-bytes": str(installed_bytes(wheels)),
        "documents": documents,
        "image": ", ".join(images),
        "signature": SIGNATURE if options.key else UNSIGNED,
    }


def _commit() -> str:
    git = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty=, with changes", "--exclude=*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="make bundle", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--extras", default=HOSPITAL, help="extras of pyproject.toml, with commas (%(default)s)")
    parser.add_argument("--key", type=Path, help="private key of ssh-keygen, or its public half with ssh-agent")
    parser.add_argument("--unsigned", action="store_true", help="make a bundle without a signature")
    parser.add_argument("--wheels", type=Path, help="take the wheels of this folder, and ask no index")
    parser.add_argument("--documents", type=Path, default=ROOT / "docs", help="a built site, or Markdown pages")
    parser.add_argument("--no-image", dest="image", action="store_false", help="leave the image out")
    tool = Path(sys.prefix) / "sbom" / "bin" / "cyclonedx-py"
    parser.add_argument("--sbom-tool", type=Path, default=tool, help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the folder of the archive (%(default)s)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the archive and return the exit code."""
    try:
        make_bundle(parse_options(arguments))
    except BundleError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
