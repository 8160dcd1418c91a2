"""For every folder: a real object store, started for the first test that asks for one."""

from tests.support.object_store import bucket, running_s3, s3

__all__ = ["bucket", "running_s3", "s3"]
