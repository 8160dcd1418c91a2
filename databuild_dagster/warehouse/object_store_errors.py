"""From an error of an object store's libraries to the sentence for a person: a type that says whether a retry may help."""

import os
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from databuild_dagster.warehouse import disk, errors, local_copies


class StoreFault(Enum):
    """Why an object store does not do as asked, for errors of this process and of Spark."""

    #: The credentials were valid once.
    EXPIRED = auto()
    #: No room, or a quota.
    FULL = auto()
    NO_BUCKET = auto()
    #: Wrong credentials, or credentials without the right.
    REFUSED = auto()
    #: It answers with an error of its own, and may answer otherwise later.
    BUSY = auto()


#: Codes of S3, of stores that speak it, and of Azure; a status of HTTP where an answer has no code. The first row that fits counts.
CODES = {
    StoreFault.EXPIRED: frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}),
    StoreFault.FULL: frozenset({"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "507"}),
    StoreFault.NO_BUCKET: frozenset(
        {"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "FilesystemNotFound"}
    ),
    StoreFault.REFUSED: frozenset(
        {
            "AccessDenied",
            "AuthenticationFailed",
            "AuthorizationPermissionMismatch",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "401",
            "403",
        }
    ),
    StoreFault.BUSY: frozenset(
        {"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "ServerBusy", "OperationTimedOut"}
        | {"429", "500", "502", "503", "504"}
    ),
}


def fault_of(codes: Iterable[str]) -> StoreFault | None:
    """The first fault that any of `codes` names; None if no fault has such a code."""
    found = set(codes)
    return next((fault for fault, of_fault in CODES.items() if found & of_fault), None)


class Kind(NamedTuple):
    """What differs between stores, in messages."""

    #: The package to install.
    package: str
    #: What the first part of a url names.
    holder: str
    #: The variables with the credentials.
    credentials: str
    #: The variable with the address of a store elsewhere.
    address: str


_S3 = Kind("databuild-dagster[s3]", "bucket", "AWS_ACCESS_KEY_ID or AWS_PROFILE", "AWS_ENDPOINT_URL")
_GOOGLE = Kind("databuild-dagster[gcs]", "bucket", "GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST")
_AZURE_KEYS = "AZURE_STORAGE_ACCOUNT_KEY or AZURE_CLIENT_ID"
_AZURE = Kind("databuild-dagster[azure]", "container", _AZURE_KEYS, "AZURE_STORAGE_CONNECTION_STRING")
KINDS = {"s3": _S3, "s3a": _S3, "gs": _GOOGLE, "gcs": _GOOGLE, "abfs": _AZURE, "abfss": _AZURE, "az": _AZURE}

#: Errors of libraries without a common base class; by name, so that no library has to be imported.
_NO_CREDENTIALS = frozenset({"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"})
_NO_PERMISSION = frozenset({"ClientAuthenticationError", "GoogleAuthError"})
_NO_ANSWER = frozenset(
    {
        "HTTPClientError",
        "EndpointConnectionError",
        "ConnectTimeoutError",
        "ConnectionClosedError",
        "ClientConnectionError",
    }
    | {"TimeoutError", "ServiceRequestError", "ServiceResponseError"}
)
_EXISTS_CODES = frozenset({"PreconditionFailed", "412"})
OVERLAP_CODES = frozenset({"ConditionalRequestConflict"})
#: How gcsfs begins an error without a code; the reason is in the second line.
_FORBIDDEN = "Forbidden: "


def is_there_already(error: Exception) -> bool:
    """Whether a write on the condition that the object does not exist was refused, because it does."""
    return isinstance(error, FileExistsError) or bool(codes_of(error) & _EXISTS_CODES)


def explained(error: Exception, path: str, done: str) -> Exception:
    """The error to raise instead: a single sentence, and a type that says whether a retry may help."""
    kind = kind_of(path)
    facts = {"path": path, "done": done, "credentials": kind.credentials, "address": kind.address}
    names = {cls.__name__ for link in _links(error) for cls in type(link).__mro__}
    fault = fault_of(codes_of(error))
    if isinstance(error, OSError) and error.errno in disk.FULL:
        return errors.DiskFull(path=local_copies.cache_dir(), done="written")
    if isinstance(error, OSError) and os.path.isabs(str(error.filename)):
        # A file of this machine: staged, or about to become a copy.
        return errors.DiskTrouble(path=error.filename, done="opened", why=(error.strerror or "").lower())
    if names & _NO_CREDENTIALS:
        return errors.AccessDenied(**facts, why="the environment has no complete credentials")
    if fault is StoreFault.EXPIRED:
        return errors.CredentialsExpired(**facts)
    if fault is StoreFault.FULL:
        return errors.StoreFull(**facts)
    if isinstance(error, PermissionError) or fault is StoreFault.REFUSED or names & _NO_PERMISSION:
        return errors.AccessDenied(**facts, why=first_line(error))
    if isinstance(error, FileNotFoundError) or fault is StoreFault.NO_BUCKET:
        return errors.BucketMissing(**facts, bucket=bucket_of(path), holder=kind.holder)
    if fault is StoreFault.BUSY or names & _NO_ANSWER or isinstance(error, ConnectionError | TimeoutError):
        return errors.StorageUnreachable(**facts, why=first_line(error))
    return errors.StorageTrouble(**facts, why=first_line(error))


def kind_of(path: str) -> Kind:
    return KINDS.get(path.partition("://")[0], _S3)


def bucket_of(path: str) -> str:
    """`s3://bucket` of a url; empty for a local path."""
    protocol, separator, rest = path.partition("://")
    return f"{protocol}{separator}{rest.partition('/')[0]}" if separator else ""


def codes_of(error: BaseException) -> frozenset[str]:
    """The store's codes of an error, as botocore, azure and gcsfs keep them; empty if there is none."""
    for link in _links(error):
        facts = getattr(link, "__dict__", {})
        response = facts.get("response")
        named = response.get("Error", {}).get("Code") if isinstance(response, dict) else facts.get("error_code")
        found = [getattr(code, "value", code) for code in (named, facts.get("status_code"), facts.get("code"))]
        if codes := frozenset(str(code) for code in found if isinstance(code, str | int)):
            return codes
        if _is_forbidden(link):
            return frozenset({"403"})
    return frozenset()


def _is_forbidden(error: BaseException) -> bool:
    return isinstance(error, OSError) and str(error).startswith(_FORBIDDEN)


def _links(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            return
        yield link
        link = link.__cause__


def first_line(error: BaseException) -> str:
    whole = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    lines = whole.strip().splitlines()[_is_forbidden(error) :]
    return (lines or [""])[0].strip().rstrip(".") or type(error).__name__
