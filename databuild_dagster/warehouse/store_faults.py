"""From the error codes of an object store to one of a few faults, for the errors of this process and for those of Spark."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto


class StoreFault(Enum):
    """Why an object store does not do as asked."""

    #: The credentials were valid once.
    EXPIRED = auto()
    #: No room, or a quota.
    FULL = auto()
    NO_BUCKET = auto()
    #: Wrong credentials, or ones without the right.
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
    """The fault that one of these codes names."""
    found = set(codes)
    return next((fault for fault, of_fault in CODES.items() if found & of_fault), None)
