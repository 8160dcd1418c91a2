"""The settings of the reporting team's code location, which its modules share."""

from databuild_dagster import DatabuildSpark, SharedLocation

reports = SharedLocation("reports", spark=DatabuildSpark())
