#!/bin/sh
# Creates .venv with this project in it, or says in one sentence what the machine lacks.
#
# PYTHON chooses the interpreter; without it the first Python 3.11 or newer on the PATH is taken.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "$*" >&2
    exit 1
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        is_new_enough "$PYTHON" || fail "PYTHON=$PYTHON is not a Python 3.11 or newer; name one that is."
        echo "$PYTHON"
        return
    fi
    for candidate in python3 python3.11 python3.12 python3.13 python3.14 python; do
        if is_new_enough "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "No Python 3.11 or newer was found; install one, or name it: make PYTHON=/path/to/python3."
}

has_java() {
    java=java
    if [ -n "${JAVA_HOME:-}" ]; then java="$JAVA_HOME/bin/java"; fi
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1) || true
    [ "${version:-0}" -ge 17 ]
}

python=$(find_python)
extras=dev
if ! has_java; then
    # Who names a Java means it, so a wrong one is said; without a name pip can bring one.
    [ -z "${JAVA_HOME:-}" ] ||
        fail "Spark needs Java 17 or newer, and JAVA_HOME=$JAVA_HOME is ${version:+Java }${version:-none}; correct or unset it."
    echo "There is no Java 17 or newer here: pip brings one"
    extras=dev,java
fi
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python cannot create virtual environments; on Debian: apt-get install python3-venv."

if ! is_new_enough .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    echo "Creating .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi
echo "Installing databuild_dagster and what it needs; the first time takes a few minutes"
.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$extras]"
touch .venv/.installed
