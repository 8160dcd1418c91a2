"""The states of an operation and of its jobs (SPEC 9)."""

from __future__ import annotations

from databuild_dagster.model.machine import Label


class OperationState(Label):
    """What a person sees of an operation; while it runs it has keys, afterwards an entry in the history."""

    #: Jobs are to be run.
    RUNNING = "running"
    #: Every job succeeded.
    SUCCESS = "success"
    #: A job failed.
    FAILED = "failed"
    #: Somebody stopped it.
    CANCELED = "canceled"
    #: It has ended, and newer code has written how.
    UNREADABLE = "unreadable"


class JobState(Label):
    """How a job ended. While it has not there is no such key."""

    SUCCESS = "success"
    FAILED = "failed"
