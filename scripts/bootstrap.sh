#!/bin/sh
# Finds a Python that the project runs on and hands over to scripts/setup.py. Only what must happen
# before there is a Python is done here.
#
# PYTHON=/path/to/python3.12 names the interpreter; otherwise the virtual environment's own is
# taken, then the first of python3, python3.13, ... on PATH that is new enough.
set -eu
cd "$(dirname "$0")/.."

fits() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' >/dev/null 2>&1
}

if [ -n "${PYTHON:-}" ]; then
    if ! fits "$PYTHON"; then
        echo "setup: PYTHON=$PYTHON does not run or is not Python 3.11 to 3.14: name another one." >&2
        exit 1
    fi
    exec "$PYTHON" -m scripts.setup --python-was-named "$@"
fi

for candidate in .venv/bin/python python3 python3.13 python3.12 python3.11 python3.14; do
    if fits "$candidate"; then
        exec "$candidate" -m scripts.setup "$@"
    fi
done

if [ "$(uname -s)" = Darwin ]; then
    install="brew install python@3.13"
elif command -v apt-get >/dev/null 2>&1; then
    install="sudo apt-get install python3.11 python3.11-venv"
else
    install="install it with the package manager of this system"
fi
found=$(python3 --version 2>/dev/null) || found="no python3"
echo "setup: Python 3.11 to 3.14 is needed, found $found: $install," \
    "or name one: make setup PYTHON=/path/to/python3.12" >&2
exit 1
