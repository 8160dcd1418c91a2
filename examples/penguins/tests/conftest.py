# The fixture `databuild_spark`, and the small Spark session that `dg.materialize` uses.
pytest_plugins = ["databuild_dagster.pytest_plugin"]
