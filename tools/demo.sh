#!/bin/sh
# Wants a month of flights, builds what it needs on Spark, prints it. A second time there is nothing left to build.
set -eu
cd "$(dirname "$0")/.."
ref=${1:-carrier_monthly@2013-01-01}
databuild=.venv/bin/databuild

# The shared server makes the next command fast, but a demo leaves nothing running.
trap '"$databuild" spark --stop >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM

echo "databuild build $ref    # the first build also starts Spark"
"$databuild" build "$ref"
echo
echo "databuild read $ref"
"$databuild" read "$ref"
echo
ui="make ui"
if [ "${EXAMPLE_SPARK:-shared}" = shared ]; then
    echo "Without Java, and with a sixth of the processor time: make demo SPARK=sail (docs/how-to/spark.md#spark-without-java)"
else
    ui="make ui SPARK=sail"
fi
echo "Every build above was an ordinary Dagster run: '$ui' opens Dagster on them."
