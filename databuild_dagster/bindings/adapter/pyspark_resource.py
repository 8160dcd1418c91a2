"""dagster-pyspark's resources where it is installed, and a base of the same form where it is not.

dagster-pyspark demands the distribution `pyspark`, which must not be beside a client such as databricks-connect."""

from typing import Any

try:
    from dagster_pyspark import LazyPySparkResource, PySparkResource
except ImportError:
    from dagster import ConfigurableResource
    from pydantic import PrivateAttr

    class LazyPySparkResource(ConfigurableResource):  # type: ignore[no-redef,type-arg]
        """A resource with a session that is opened when it is first asked for."""

        spark_config: dict[str, Any]
        _spark_session: Any = PrivateAttr(default=None)

        def _init_session(self) -> None:
            raise NotImplementedError

        @property
        def spark_session(self) -> Any:
            """The session, which is opened now unless it is open. Raises errors of opening."""
            self._init_session()
            return self._spark_session

        @property
        def spark_context(self) -> Any:
            """The context of the session's JVM. A client has none, and PySpark says so."""
            return self.spark_session.sparkContext

    class PySparkResource(LazyPySparkResource):  # type: ignore[no-redef]
        """The same; no session is opened before it is asked for."""


__all__ = ["LazyPySparkResource", "PySparkResource"]
