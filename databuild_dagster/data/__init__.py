"""What the log and the files say together: read plans, clean-up and the output of lost runs. Knows neither Dagster nor Spark."""
