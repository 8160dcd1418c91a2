"""The fixtures of Spark's folder."""

from tests.spark.conftest import active_session, home, pytest_itemcollected, reach, spark, warehouse, write

__all__ = ["active_session", "home", "pytest_itemcollected", "reach", "spark", "warehouse", "write"]
