#!/bin/sh
# Plays three days of files that land hour by hour: what arcs make of them, what is missing, and what comes late.
set -eu
cd "$(dirname "$0")/../.."
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
    printf '$ databuild admin tick -f examples/flights/lots.py    # until nothing is due\n'
    n=0
    while [ $n -lt $most_ticks ]; do
        answer=$(databuild admin tick -f examples/flights/lots.py)
        printf '  %s\n' "$answer"
        [ "$answer" != "Nothing is due." ] || return 0
        n=$((n + 1))
    done
    echo "After $most_ticks ticks there is still something due." >&2
    return 1
}

# The shared server makes the next command fast, but a demo leaves nothing running.
trap 'databuild spark --stop >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM

# Always from the beginning: a file that has arrived once would not be late a second time.
if [ -d "$DAGSTER_HOME" ]; then databuild spark --stop >/dev/null 2>&1 || true; fi
rm -rf "$DAGSTER_HOME" "$LOTS_LANDING"
mkdir -p "$DAGSTER_HOME" "$LOTS_LANDING"
cp dagster.yaml "$DAGSTER_HOME"

echo "1. A sender writes flights and weather as files, one for each hour. It prints which files are late or missing."
printf '$ python -m examples.flights.land %s --days %s\n' "$folder/landing" "$LOTS_DAYS"
"$python" -m examples.flights.land "$LOTS_LANDING" --days "$LOTS_DAYS"

say "2. The boundaries read the folder: the files of each hour that is over become a lot. No file is copied."
run lot arrive --landed -f examples/flights/lots.py

say "3. The tick wants and builds the lots whose sources arrived. The first build starts Spark."
tick_on

say "4. The state of the arcs and lots. Each lot that waits needs a file."
run lot list --subscriptions
echo
run lot list

say "5. The missing lots, with the first cause of each: a file that did not arrive."
run lot gaps landed_flights
echo
run lot gaps daily_summary

say "6. A day is built when all of its hours are there."
run read daily_summary@2013-02-09

say "7. The late files arrive. A whole hour closes its gap. Half an hour makes a new instance of its lot."
printf '$ python -m examples.flights.land %s --days %s --late\n' "$folder/landing" "$LOTS_DAYS"
"$python" -m examples.flights.land "$LOTS_LANDING" --days "$LOTS_DAYS" --late
run lot arrive --landed -f examples/flights/lots.py

say "8. Only the hours of these files are built, and the days that contain them."
tick_on
run read daily_summary@2013-02-09

say "9. The lots that are missing now need the file that the sender never sent."
run lot gaps daily_summary --chain

say "Look around: 'export DAGSTER_HOME=$DAGSTER_HOME', then databuild lot list --subscriptions, lot list or lot gaps,"
echo "or 'databuild dev -f examples/flights/lots.py', which opens Dagster and watches the folder."
