"""The log and the files compared: read plans, clean-up and the output of lost runs. Imports neither Dagster nor Spark."""
