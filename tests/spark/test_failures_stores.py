"""The words of each client that a Spark on a JVM has for an object store become one sentence (rule 6.8)."""

import pytest
from pyspark.errors import PySparkException

from databuild_dagster.spark.failures import is_of_the_machine, is_transient, store_trouble

#: As the log of a cluster shows them; the first two lines are of Amazon's SDK 1 and 2.
SAID = {
    "old sdk": (
        "AccessDeniedException: s3a://box/a: PUT on a: com.amazonaws.services.s3.model.AmazonS3Exception: The provided token has "
        "expired. (Service: Amazon S3; Status Code: 400; Error Code: ExpiredToken; Request ID: 7; S3 Extended Request ID: 8=)",
        "the credentials of that Spark have expired",
    ),
    "new sdk": (
        "org.apache.hadoop.fs.s3a.AWSBadRequestException: PUT 0-byte object  on a: software.amazon.awssdk.services.s3.model."
        "S3Exception: The provided token has expired. (Service: S3, Status Code: 400, Request ID: 7, Extended Request ID: 8+/=) "
        "(SDK Attempt Count: 1):ExpiredToken: The provided token has expired.",
        "the credentials of that Spark have expired",
    ),
    "new sdk, no count": (
        "S3Exception: The provided token has expired. (Service: S3, Status Code: 400, Request ID: 7, Extended Request ID: 8+/=)"
        ":ExpiredToken",
        "the credentials of that Spark have expired",
    ),
    "new sdk, HEAD": (
        "getFileStatus on s3a://box/a: software.amazon.awssdk.services.s3.model.S3Exception: null (Service: S3, Status Code: 400, "
        "Request ID: 7, Extended Request ID: 8=):null",
        "the object store refuses it to the credentials of that Spark",
    ),
    "new sdk, no rights": (
        "java.nio.file.AccessDeniedException: s3a://box/a: PUT: software.amazon.awssdk.services.s3.model.S3Exception: Access Denied "
        "(Service: S3, Status Code: 403, Request ID: 7, Extended Request ID: 8=):AccessDenied",
        "the object store refuses it to the credentials of that Spark",
    ),
    "no credentials": (
        "java.nio.file.AccessDeniedException: s3a://box/a: org.apache.hadoop.fs.s3a.auth.NoAwsCredentialsException: "
        "SimpleAWSCredentialsProvider: No AWS credentials in the Hadoop configuration",
        "the object store refuses it to the credentials of that Spark",
    ),
    "no bucket": (
        "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://box/': Bucket does not exist: software.amazon.awssdk.services.s3."
        "model.NoSuchBucketException: null (Service: S3, Status Code: 404, Request ID: 7)",
        "there is no such bucket",
    ),
    "azure": (
        'Operation failed: "This request is not authorized to perform this operation.", 403, PUT, https://us.dfs.core.windows.net/box/a'
        '?resource=file&timeout=90, rId: 7, AuthorizationPermissionMismatch, "This request is not authorized"',
        "the object store refuses it to the credentials of that Spark",
    ),
    "azure, no container": (
        'Operation failed: "The specified filesystem does not exist.", 404, HEAD, https://us.dfs.core.windows.net/box?timeout=90, '
        'FilesystemNotFound, "The specified filesystem does not exist."',
        "there is no such bucket",
    ),
    "google": (
        "com.google.cloud.hadoop.repackaged.gcs.com.google.api.client.googleapis.json.GoogleJsonResponseException: 403 Forbidden",
        "the object store refuses it to the credentials of that Spark",
    ),
}


@pytest.mark.parametrize(("said", "why"), SAID.values(), ids=SAID)
def test_what_a_client_of_a_store_says_on_a_jvm_is_known(said: str, why: str) -> None:
    error = PySparkException(f"Job aborted due to stage failure: {said}")

    found = store_trouble(error)

    assert found is not None
    assert found.why == why
    assert is_transient(error)
    assert is_of_the_machine(error) is (why != "there is no such bucket")


def test_an_error_of_a_store_that_has_another_cause_is_not_named() -> None:
    said = (
        "S3Exception: The XML was not well formed (Service: S3, Status Code: 400, Request ID: 7):MalformedXML: nothing"
    )

    assert store_trouble(PySparkException(said)) is None
