"""The context of an operation's job: Spark, the data of its partition, and a folder to write to.

All jobs of an executor share a session, opened by the first that asks for it. The Spark work of a job is interrupted
as soon as a different executor has the job, the operation has ended, or the executor is interrupted (rules 9.4, 9.7).
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any

from dagster import DagsterInstance

from databuild_dagster.bindings.reading.frames import Frames, How
from databuild_dagster.bindings.reading.read import Format, check_format
from databuild_dagster.bindings.registry.instance import engine_for
from databuild_dagster.data.read_plan import NotOurs, check_data_of, data_gone, manifests_in
from databuild_dagster.engine.engine import Engine
from databuild_dagster.features.operations.job import CannotExecute, JobContext, RetryJob, error_text
from databuild_dagster.model.errors import LeaseLost
from databuild_dagster.model.logs import logger
from databuild_dagster.model.refs import asset_of, parse_ref
from databuild_dagster.spark.errors import NoSession
from databuild_dagster.spark.failures import explain_failure, is_lost, is_of_the_machine, is_transient
from databuild_dagster.spark.memory_frames import FrameKind
from databuild_dagster.spark.staging import staging
from databuild_dagster.store.queries.canonical import Canonical
from databuild_dagster.warehouse import disk
from databuild_dagster.warehouse.errors import DiskTrouble, ManifestMissing
from databuild_dagster.warehouse.layout import Warehouse
from databuild_dagster.warehouse.manifest import Manifest

#: Packages whose errors end in pages of Java.
_SPARKS = ("pyspark", "py4j", "grpc")


def explained(error: Exception) -> str:
    """A job's error as it is recorded; an error of Spark becomes a sentence."""
    is_of_spark = any(kind.__module__.partition(".")[0] in _SPARKS for kind in type(error).__mro__)
    return explain_failure(error) if is_of_spark else error_text(error)


@dataclass
class OperationResources:
    """The resources of operations, given to every job, check and completion."""

    instance: DagsterInstance
    frames: Frames
    log: logging.Logger = field(default_factory=lambda: logger("databuild"))

    @property
    def engine(self) -> Engine:
        """The engine of the Dagster instance, with its queries."""
        return engine_for(self.instance)

    @property
    def warehouse(self) -> Warehouse:
        """The place of the files of the code location."""
        return self.frames.warehouse

    @property
    def spark(self) -> Any:
        """The Spark session, opened at the first use. Raises `CannotExecute`."""
        try:
            return self.frames.spark.session
        except NoSession as error:
            raise CannotExecute(str(error)) from error

    @contextmanager
    def around(self, contexts: Sequence[JobContext]) -> Iterator[None]:
        """Tag a call's Spark work, so that each of its jobs can have it interrupted.

        Errors of the session become `RetryJob`, errors of the machine `CannotExecute`; errors of the data are raised unchanged.
        """
        tag = f"databuild-operation-{contexts[0].token}"
        is_first = Lock()

        def interrupt() -> None:
            # Once for all jobs of a batch.
            if is_first.acquire(blocking=False):
                self.frames.spark.begin_to_interrupt(tag)

        for context in contexts:
            context.on_stop.append(interrupt)
        try:
            with self.frames.spark.interruptible(tag):
                yield
        except (RetryJob, LeaseLost, CannotExecute):
            raise
        except Exception as error:
            if any(context.is_stopped for context in contexts):
                raise
            if is_lost(error):
                self.frames.spark.forget_lost_session()
                raise RetryJob(explain_failure(error)) from error
            if is_of_the_machine(error):
                raise CannotExecute(explain_failure(error)) from error
            if is_transient(error):
                raise RetryJob(explain_failure(error)) from error
            raise
        finally:
            for context in contexts:
                context.on_stop.remove(interrupt)


class OperationContext(JobContext):
    """A `JobContext` with the data of its partition, Spark, and a folder to write to."""

    @property
    def _resources(self) -> OperationResources:
        found: OperationResources = self.extras
        return found

    @property
    def instance(self) -> DagsterInstance:
        """The Dagster instance."""
        return self._resources.instance

    @property
    def engine(self) -> Engine:
        """The engine of the Dagster instance, with its queries."""
        return self._resources.engine

    @property
    def log(self) -> logging.Logger:
        """Dagster's log of the run; with `--local` the log of the command."""
        return self._resources.log

    @property
    def warehouse(self) -> Warehouse:
        """The place of the files of the code location."""
        return self._resources.warehouse

    @property
    def spark(self) -> Any:
        """The Spark session that all jobs of this executor share; the job's work in it ends when the job is stopped.

        Raises `LeaseLost` once the job is stopped, and `KeyboardInterrupt` once its executor is interrupted.
        """
        if self.on_stop:
            # The interrupt has been sent; Spark work that begins now would not be interrupted.
            self.raise_if_stopped()
        return self._resources.spark

    @cached_property
    def manifest(self) -> Manifest:
        """The manifest of the instance that the partition had when the operation began, also if it was rebuilt since.

        Raises `NotOurs` for data outside of our warehouse, `DataRemoved` and `DamagedData`.
        """
        found = self._as_it_was
        asset = asset_of(found.ref)
        try:
            (manifest,) = manifests_in(self.warehouse, asset, [found])
        except ManifestMissing as error:
            spec = self.engine.queries.datasets.get(asset)
            raise data_gone(spec, found.ref, str(found.uuid), f"there is no {error.facts['path']}") from error
        return manifest

    def read(self, *, format: Format = "spark", where: str | None = None) -> Any:
        """The rows that `manifest` lists, as a frame of Spark, pandas, Polars or Arrow.

        `format` and `where` mean the same as for `databuild_dagster.read`. All formats but `spark` need no Spark server.
        Raises `InvalidRequest` for any other format, `BadFilter`, what `manifest` raises, and for a Spark frame what `spark` raises.
        """
        check_format(format)
        kind = FrameKind(format)
        _ = self.manifest
        if kind is FrameKind.SPARK:
            _ = self.spark
        return self._resources.frames.read([self._as_it_was], asset_of(self._as_it_was.ref), How(kind, where))

    @cached_property
    def _as_it_was(self) -> Canonical:
        """Raises `NotOurs`, `DataRemoved`, `DamagedData`."""
        ref = parse_ref(self.ref)
        instance = None if self.instance_uuid is None else self.engine.queries.instances.get(self.instance_uuid)
        if instance is None:
            raise NotOurs(ref=ref)
        check_data_of(self.engine.queries, instance, self.engine.queries.datasets.get(asset_of(ref)))
        return Canonical(ref, uuid=instance.uuid, manifest_uri=instance.manifest_uri)

    def folder(self) -> AbstractContextManager[str]:
        """A folder of this job alone, from which publishing is cheap; the end of the block removes it."""
        return staging(self.warehouse, _staging_name(self.token))

    def remove_folders(self) -> None:
        """Remove the folders of a killed process. For `cancel_job_and_cleanup`."""
        folder = self.warehouse.staging_dirs().get(_staging_name(self.token))
        if folder is not None:
            with suppress(DiskTrouble):
                disk.remove_tree(folder)


def _staging_name(token: str) -> str:
    return f"operation-{token}"
