#!/bin/sh
# Installs Wardround from this folder, without a network, on Linux and macOS. sh install.sh --help lists the options.
# It chooses the Python that the bundle was made for. Set PYTHON=/path/to/python to choose another copy of it.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
version=$(sed -n 's/^# python: \([0-9][0-9.]*\)$/\1/p' "$here/MANIFEST" 2>/dev/null || true)
if test -z "$version" || ! test -r "$here/install.py"; then
    echo "MANIFEST or install.py is missing beside install.sh: unpack the archive again, and start it there." >&2
    exit 1
fi
fits() { "$1" -I -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; }
if test -z "${PYTHON:-}"; then
    if fits "python$version"; then PYTHON=python$version; else PYTHON=python3; fi
fi
if fits "$PYTHON"; then
    exec "$PYTHON" -I -B "$here/install.py" "$@"
fi
echo "This bundle needs Python $version, and $PYTHON is not it: install it, set PYTHON=/path/to/python$version, or ask for a bundle for your Python." >&2
exit 1
