"""From an exception of Spark to a sentence, and to whether a retry may help.

Spark's own messages are pages long and end in Java; the useful part is the condition and its parameters."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from databuild_dagster.model.errors import DatabuildError
from databuild_dagster.model.redaction import text_of, without_secrets
from databuild_dagster.model.surroundings import Surrounding
from databuild_dagster.model.wording import utf8
from databuild_dagster.spark import errors
from databuild_dagster.spark.pyspark_names import condition_of, has_jvm, query_contexts
from databuild_dagster.store.errors import StoreUnusable
from databuild_dagster.warehouse.errors import DiskTrouble, FolderChanged, StorageTrouble
from databuild_dagster.warehouse.object_store_errors import StoreFault, fault_of

MAX_SENTENCE_LENGTH = 400

#: Failures of the machine: once it is fixed, no ref needs a taint.
_OF_THE_MACHINE = (errors.NoSession, DiskTrouble, StorageTrouble, StoreUnusable)
#: Not so where the author's own settings open no session.
_OF_THE_SETTINGS = (errors.BadSetting, errors.BadSparkUrl, errors.FixedSetting, errors.SessionModesMixed)
#: The owners of failures, by the place that raised them.
_OWNERS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Surrounding], ...] = (
    (StoreUnusable, Surrounding.STATE),
    ((DiskTrouble, StorageTrouble), Surrounding.WAREHOUSE),
    (errors.NoSession, Surrounding.SPARK),
)
#: Conditions and phrases of a lost session.
_LOST = (
    "UNAVAILABLE",
    "failed to connect to all addresses",
    "Connection refused",
    "Connection reset",
    "Socket closed",
    "Stream removed",
    "Answer from Java side is empty",
    "Error while sending or receiving",
    "SESSION_NOT_FOUND",
    "SESSION_CLOSED",
    "SESSION_CHANGED",
    # PySpark, after its server was started again.
    "incorrect server side session identifier",
    # Sail, likewise.
    "invalid argument: operation not found",
    "OPERATION_NOT_FOUND",
    "SparkContext was shut down",
    "stopped SparkContext",
)
#: py4j's message when its JVM has ended; otherwise a Java exception follows after a colon.
_JVM_GONE = re.compile(
    r"^Py4J(?:Network)?Error (?:An error occurred while calling [\w.$]+$|.*connect to the Java server)", re.M
)
#: Sail, of a session that was closed.
_SESSION_GONE = re.compile(r"session [\w-]+ is not running")
#: A worker reads a function that names a module which only this process has.
_MODULE_LACKING = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.M)
_EXECUTOR_LOST = (
    "ExecutorLostFailure",
    "Lost executor",
    "executor heartbeat timed out",
    "FetchFailed",
    "All masters are unresponsive",
    "Master removed our application",
    "Python worker exited unexpectedly",
)
_INTERRUPTED = (
    "OPERATION_CANCELED",
    "OPERATION_CANCELLED",
    "cancelled part of",
    "cancelled because",
    "was cancelled",
)
_DISK_FULL = ("No space left on device", "Disk quota exceeded")
#: What an error of Spark says about the object store, and what to do. Spark and this process have different credentials.
_OF_A_STORE = {
    StoreFault.EXPIRED: (
        "the credentials of that Spark have expired",
        "Give it new ones, or such as renew themselves: they are others than those of this process.",
    ),
    StoreFault.FULL: (
        "the object store is full",
        "Free some space there, such as by `databuild gc`, or raise the quota, then build again.",
    ),
    StoreFault.NO_BUCKET: (
        "there is no such bucket",
        "Create it, or set the endpoint of its store in the configuration of that Spark.",
    ),
    StoreFault.REFUSED: (
        "the object store refuses it to the credentials of that Spark",
        "Give it credentials that may put, get, list and delete there: they are others than those of this process.",
    ),
    StoreFault.BUSY: (
        "the object store did not answer that Spark as it should",
        "Check the store, and its endpoint in the configuration of that Spark.",
    ),
}
#: A file in the folder of a local Spark server, `settings.state_dir`.
_BELOW_A_SERVER = re.compile(r"/(?:databuild-)?spark(?:-\d+)?/[0-9a-f]{12}/(.+)$")
#: The code of the store and the status of HTTP, as the clients of Spark's engines quote them: Sail, both versions of Amazon's
#: SDK for Java, Azure and Google.
_STORE_CODE = re.compile(
    r"<Code>(\w+)</Code>|error occurred \((\w+)\) when|Error Code: (\w+)|Status Code: (\d{3})|status code: (\d{3})"
    r"|Request ID: [^()\s]*\)(?: \(SDK Attempt Count: \d+\))?:([A-Z]\w+)"
    r"|, \d{3}, [A-Z]+, https?://[^\s,]+,(?: rId: [^\s,]+,)? (\w+), \"|GoogleJsonResponseException: (\d{3}) "
)
#: Phrases of engines in the place of a code.
_STORE_PHRASES = {
    "credential provider was not enabled": "AccessDenied",
    "NoAuthWithAWSException": "AccessDenied",
    "NoAwsCredentialsException": "AccessDenied",
    "UnknownStoreException": "NoSuchBucket",
    "NoSuchBucketException": "NoSuchBucket",
    # An answer to `HEAD` has no code. Of an object, S3 gives this one for a token that has expired, and for a wrong region.
    "null (Service: S3, Status Code: 400": "AccessDenied",
    "Error Code: 400 Bad Request": "AccessDenied",
    "HTTP error: error sending request": "ServiceUnavailable",
}
#: `Error performing PUT http://…/bucket/key?… in 2 ms`, or the url of a Hadoop file system.
_STORE_PLACE = re.compile(r"Error performing \w+ (https?://[^\s?]+)|\b((?:s3a?|gs|abfss?|wasbs?)://[^\s,;:'\"]+)")
#: What a classic session says of a column or window that was made before it (`at_import`): both classes have the same name.
_MADE_FOR_A_CLIENT = re.compile(
    r"should be (?:a )?(?:column(?: or str\w*)?, got Column|WindowSpec, got WindowSpec)\b", re.IGNORECASE
)
#: The same, where it looks for the column in its JVM at once. In a process without a JVM, a function asked for what clients lack.
_LOOKED_FOR_IN_A_JVM = "JVM_ATTRIBUTE_NOT_SUPPORTED"
#: PySpark 4.3 reads what Sail 0.7 packs for an older PySpark.
_NEWER_FUNCTION = "AttributeError: 'bytes' object has no attribute 'udfs'"
_OUT_OF_MEMORY = ("OutOfMemoryError", "Java heap space", "GC overhead limit exceeded")
#: `Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.3 executor 2): …`; in a local JVM it is `executor driver`.
_ON_AN_EXECUTOR = re.compile(r"\(TID \d+\) \((?P<host>\S+) executor (?!driver\b)(?P<executor>\w+)\)")
#: The end of an executor without memory: Spark's own exit code, or killed by its machine or container.
_MEMORY_EXIT = re.compile(r"(?:exited with code |exit code |exit status:? )(?:52|137)\b", re.IGNORECASE)


class StoreTrouble(NamedTuple):
    """What an object store refused a Spark."""

    fault: StoreFault
    why: str
    advice: str
    #: The object or the folder, if the error names it.
    place: str | None


def store_trouble(exception: BaseException) -> StoreTrouble | None:
    """The trouble with an object store that an error of Spark reports; None without such trouble."""
    if not _from_spark(exception):
        return None
    text = _all_text(exception)
    if "Traceback (most recent call last)" in text:
        return None  # A Python function in Spark has clients of its own.
    codes = [code for found in _STORE_CODE.findall(text) for code in found if code]
    codes += [code for phrase, code in _STORE_PHRASES.items() if phrase in text]
    if (fault := fault_of(codes)) is None:
        return None
    place = _STORE_PLACE.search(text)
    return StoreTrouble(fault, *_OF_A_STORE[fault], place=(place[1] or place[2]).rstrip(".") if place else None)


def is_transient(exception: BaseException) -> bool:
    """Whether a retry may succeed: the server or an executor was lost, the job was interrupted, or the machine lacks
    something."""
    if is_of_the_machine(exception) or isinstance(exception, errors.AttemptIncomplete | FolderChanged):
        return True
    if store_trouble(exception) is not None:
        return True
    text = _all_text(exception)
    if _from_spark(exception) and _executor_out_of_memory(text):
        return True
    if _names(text, _OUT_OF_MEMORY):
        return False
    return _from_spark(exception) and (_is_lost(text) or _names(text, (*_EXECUTOR_LOST, *_INTERRUPTED, *_DISK_FULL)))


def is_of_the_machine(exception: BaseException) -> bool:
    """Whether the machine or a store lacks something, so that every build there fails alike."""
    if isinstance(exception, _OF_THE_MACHINE) and not isinstance(exception, _OF_THE_SETTINGS):
        return True
    trouble = store_trouble(exception)
    # A bucket that is not there may be one that a function names.
    return trouble is not None and trouble.fault is not StoreFault.NO_BUCKET


def owner_of(exception: BaseException) -> Surrounding | None:
    """What a failure is of, if it is not the partition's own; a probe of it decides whether that is believed (rule 6.17)."""
    if isinstance(exception, _OF_THE_SETTINGS):
        return None
    for kind, owner in _OWNERS:
        if isinstance(exception, kind):
            return owner
    if (trouble := store_trouble(exception)) is not None:
        return None if trouble.fault is StoreFault.NO_BUCKET else Surrounding.WAREHOUSE
    text = _all_text(exception)
    if not _from_spark(exception) or _names(text, _OUT_OF_MEMORY):
        return None
    if _names(text, _DISK_FULL):
        return Surrounding.WAREHOUSE
    return Surrounding.SPARK if _is_lost(text) or _names(text, _EXECUTOR_LOST) else None


def is_lost(exception: BaseException) -> bool:
    """Whether the session was lost, so that a retry needs a new session."""
    return _from_spark(exception) and _is_lost(_all_text(exception))


def refusal(spark: str, error: Exception) -> errors.SparkRefuses:
    """The error of a Spark that answers and does not work; its own may be of any class."""
    import pyspark

    why = "the connection to it is lost at once" if is_lost(error) else explain_failure(error).rstrip(".")
    return errors.SparkRefuses(spark=spark, why=why, version=pyspark.__version__)


def explain_failure(exception: BaseException) -> str:
    """The failure and its place in a sentence in UTF-8; the exception's own first line if the failure is unknown."""
    sentence = without_secrets(utf8(_sentence(exception)))
    return sentence if len(sentence) <= MAX_SENTENCE_LENGTH else f"{sentence[: MAX_SENTENCE_LENGTH - 1]}…"


def _sentence(exception: BaseException) -> str:
    if isinstance(exception, DatabuildError):
        return text_of(exception)
    if not _from_spark(exception):
        return f"{type(exception).__name__}: {_first_line(exception)}"
    text = _all_text(exception)
    if known := _known_condition(exception):
        return f"{known}{_where(exception)}"
    if trouble := store_trouble(exception):
        return f"Spark could not use {trouble.place or 'the object store'}: {trouble.why}. {trouble.advice}"
    if _names(text, _DISK_FULL):
        return "The disk is full where Spark writes: free some space, then build again."
    if place := _executor_out_of_memory(text):
        return (
            f"A Spark executor ({place}) ran out of memory, or was killed for it, and was lost: raise "
            "spark.executor.memory, or build fewer partitions at once."
        )
    if _names(text, _OUT_OF_MEMORY):
        return "Spark ran out of memory: raise spark.driver.memory, or build fewer partitions at once."
    if _names(text, _INTERRUPTED):
        return "The Spark job was interrupted."
    if _is_lost(text):
        return "The Spark server was lost during the job: the next attempt gets another session."
    if _names(text, _EXECUTOR_LOST):
        return "A Spark executor or worker was lost during the job."
    if lacking := _MODULE_LACKING.search(text):
        module = lacking[1].partition(".")[0]
        return (
            f"The Python workers of Spark lack the module {module}: install it there, or send its file by "
            f"spark.addArtifacts('{module}.py', pyfile=True)."
        )
    if _NEWER_FUNCTION in text:
        return (
            "This Sail runs no Python functions of this PySpark, only those of an older one: write the step with Spark's own "
            "functions, install PySpark 4.2, or let DatabuildSpark run without mode='sail'."
        )
    if _MADE_FOR_A_CLIENT.search(text) or (_LOOKED_FOR_IN_A_JVM in text and has_jvm()):
        return (
            "A column or window was made while a module was imported, before there was a session, and a Spark of this process takes "
            "none of those: make it inside of the asset's function, or let DatabuildSpark run in mode shared."
        )
    if raised := _raised_in_python(text):
        return f"A Python function in Spark raised {raised}"
    return f"{type(exception).__name__}: {_first_line(exception)}{_where(exception)}"


def _known_condition(exception: BaseException) -> str | None:
    condition, parameters = _condition(exception)
    name = parameters.get("objectName", "")
    match condition.split("."):
        case ["UNRESOLVED_COLUMN", *_] | ["UNRESOLVED_FIELD", *_]:
            there = parameters.get("proposal", "")
            return f"There is no column {name}" + (f"; there is {there}" if there else "")
        case ["MISSING_ATTRIBUTES", *_]:
            missing, there = parameters.get("missingAttributes", name), parameters.get("input", "nothing")
            return f"There is no column {missing}; the input has {there}"
        case ["AMBIGUOUS_REFERENCE"]:
            several = parameters.get("referenceNames", "several")
            return f"Column {parameters.get('name', name)} could be any of {several}"
        case ["COLUMN_ALREADY_EXISTS"]:
            return f"Column {parameters.get('columnName', name)} is there twice"
        case ["TABLE_OR_VIEW_NOT_FOUND"]:
            return f"There is no table or view {parameters.get('relationName', name)}"
        case ["PATH_NOT_FOUND"] | ["FAILED_READ_FILE", "FILE_NOT_EXIST"]:
            return _not_there(parameters.get("path", name))
        case ["FAILED_READ_FILE", *_]:
            return f"File {parameters.get('path', name)} cannot be read"
        case _:
            return None


def _not_there(path: str) -> str:
    relative = _BELOW_A_SERVER.search(path)
    if relative is None:
        return f"There is no file {path}"
    return (
        f"There is no file {relative[1]} in the folder of the Spark server, where a relative path begins: give an absolute path, "
        f"such as str(Path(__file__).parent / {relative[1]!r})"
    )


def _where(exception: BaseException) -> str:
    """The line of the user's code in Spark's error, or nothing."""
    from pyspark.errors import PySparkException

    for link in _chain(exception):
        if not isinstance(link, PySparkException):
            continue
        for context in _asked(partial(query_contexts, link), ()):
            # PySpark raises for a fact that this kind of context lacks.
            fragment, call_site = _asked(context.fragment, ""), _asked(context.callSite, "")
            if call_site:
                return f" (in {fragment or 'a query'}, {call_site.strip()})"
    return ""


def _asked(question: Callable[[], Any], otherwise: Any) -> Any:
    """What an exception answers. An exception of a classic session asks its JVM, and raises if the JVM is gone."""
    try:
        return question()
    except Exception:
        return otherwise


def _condition(exception: BaseException) -> tuple[str, dict[str, str]]:
    from pyspark.errors import PySparkException

    for link in _chain(exception):
        if isinstance(link, PySparkException) and (condition := _asked(partial(condition_of, link), "")):
            return condition, dict(_asked(link.getMessageParameters, {}) or {})
    return "", {}


def _is_lost(text: str) -> bool:
    return _names(text, _LOST) or any(form.search(text) for form in (_JVM_GONE, _SESSION_GONE))


def _executor_out_of_memory(text: str) -> str | None:
    """The executor that ran out of memory in a JVM of its own, which counts as a lost executor (rule 6.8)."""
    found = _ON_AN_EXECUTOR.search(text)
    if found is None or not (_names(text, _OUT_OF_MEMORY) or _MEMORY_EXIT.search(text)):
        return None
    return f"{found['executor']} on {found['host']}"


def _from_spark(exception: BaseException) -> bool:
    """Whether it came through PySpark, py4j or gRPC."""
    roots = {cls.__module__.partition(".")[0] for link in _chain(exception) for cls in type(link).__mro__}
    return bool(roots & {"pyspark", "py4j", "grpc"})


def _raised_in_python(text: str) -> str | None:
    """The last line of a worker's traceback: `ValueError: bad day`."""
    if "Traceback (most recent call last)" not in text:
        return None
    found = re.findall(
        r"^((?:\w+\.)*\w+(?:Error|Exception|Interrupt|Warning): .*)$", text.partition("Traceback")[2], re.M
    )
    return found[0].strip() if found else None


def _all_text(exception: BaseException) -> str:
    return "\n".join(f"{type(link).__name__} {text_of(link)}" for link in _chain(exception))


def _chain(exception: BaseException) -> Iterator[BaseException]:
    """The exception and its causes; bounded, because a chain may be a ring."""
    link: BaseException | None = exception
    for _ in range(10):
        if link is None:
            return
        yield link
        link = link.__cause__ or link.__context__


def _names(text: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in text for phrase in phrases)


def _first_line(exception: BaseException) -> str:
    return next((line.strip() for line in text_of(exception).splitlines() if line.strip()), "no message")
