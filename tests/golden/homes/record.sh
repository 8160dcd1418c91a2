#!/bin/sh
# Makes a home by the code of another commit: CHECKOUT is its work tree, and FOLDER becomes the project of the home.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$(cd "$1" && pwd) DAGSTER_DISABLE_TELEMETRY=1
mkdir "$2" && cd "$2"
cp "$here/definitions.py" .
printf 'load_from:\n  - python_file: definitions.py\n' > workspace.yaml
databuild() { python -m databuild_dagster "$@"; }

databuild build revenue@2024-01-01 revenue@2024-01-02 revenue@2024-01-03
databuild build revenue@2024-01-04 && exit 1
databuild build --rebuild orders@2024-01-01
databuild taint orders@2024-01-02 --reason "a shop was missing" --downstream
databuild want create revenue@2024-01-05 --ttl 36500d
