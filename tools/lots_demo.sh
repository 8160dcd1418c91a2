#!/bin/sh
# Plays three days of files that land hour by hour: what arcs make of them, what is missing, and what comes late.
set -eu
cd "$(dirname "$0")/.."
python=${DEMO_PYTHON:-.venv/bin/python}
folder=${LOTS_DEMO:-.lots_demo}
export LOTS_DAYS="${LOTS_DAYS:-3}"
export LOTS_LANDING="$folder/landing"
export DAGSTER_HOME="$folder/home"
case $folder in /*) ;; *) DAGSTER_HOME="$PWD/$DAGSTER_HOME" LOTS_LANDING="$PWD/$LOTS_LANDING" ;; esac
most_ticks=12

databuild() {
    "$python" -m databuild_dagster "$@"
}

say() {
    printf '\n%s\n' "$1"
}

run() {
    printf '$ databuild %s\n' "$*"
    databuild "$@"
}

# As the orchestrator in Dagster does it every five seconds by itself.
tick_on() {
    printf '$ databuild tick -f lots.py    # until nothing is due\n'
    n=0
    while [ $n -lt $most_ticks ]; do
        answer=$(databuild tick -f lots.py)
        printf '  %s\n' "$answer"
        [ "$answer" != "Nothing is due." ] || return 0
        n=$((n + 1))
    done
    echo "After $most_ticks ticks there is still something due." >&2
    return 1
}

# The shared server makes the next command fast, but a demo leaves nothing running.
trap 'databuild spark stop >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM

# Always from the beginning: a file that has arrived once would not be late a second time.
if [ -d "$DAGSTER_HOME" ]; then databuild spark stop >/dev/null 2>&1 || true; fi
rm -rf "$DAGSTER_HOME" "$LOTS_LANDING"
mkdir -p "$DAGSTER_HOME" "$LOTS_LANDING"
cp dagster.yaml "$DAGSTER_HOME"

echo "1. A sender drops flights and weather as files, an hour each. It tells what goes wrong on the way."
printf '$ python -m tools.land %s --days %s\n' "$folder/landing" "$LOTS_DAYS"
"$python" -m tools.land "$LOTS_LANDING" --days "$LOTS_DAYS"

say "2. The boundaries look into the folder: each hour that is over becomes a lot. Nothing is copied."
run lot look -f lots.py

say "3. Arcs: who subscribes to a lot that has come is wanted, and built. The first time, Spark starts."
tick_on

say "4. How far the arcs are. What waits is waiting for files."
run arc list
echo
run lot list

say "5. Which lots are missing, and why: every wait is followed to the file that did not come."
run lot gaps landed_flights
echo
run lot gaps daily_summary

say "6. A day is built when it has all of its hours."
run read daily_summary@2013-02-09

say "7. Then the late files come: a whole hour closes its gap, half an hour is a new instance of its lot."
printf '$ python -m tools.land %s --days %s --late\n' "$folder/landing" "$LOTS_DAYS"
"$python" -m tools.land "$LOTS_LANDING" --days "$LOTS_DAYS" --late
run lot look -f lots.py

say "8. Only the hours that it is about are built, and the days that they belong to."
tick_on
run read daily_summary@2013-02-09

say "9. What is missing now is what the sender has never sent."
run lot gaps daily_summary --chain

say "Look around: 'export DAGSTER_HOME=$DAGSTER_HOME', then databuild arc list, lot list or lot gaps,"
echo "or 'databuild dev -f lots.py', which opens Dagster on it and watches the folder by itself."
