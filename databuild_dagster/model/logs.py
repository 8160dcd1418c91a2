"""The loggers of the package: no record of theirs holds a secret, its exception's text included."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from databuild_dagster.model.redaction import hide_secrets_of, without_secrets
from databuild_dagster.model.wording import one_line


class _WithoutSecrets(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = without_secrets(record.getMessage()), ()
        if record.exc_info and record.exc_info[1] is not None:
            shown = hide_secrets_of(record.exc_info[1])
            record.exc_info = (type(shown), shown, record.exc_info[2])
        return True


def logger(name: str) -> logging.Logger:
    """The logger of a module. A filter of a logger does not see records of its children, so each module has its own."""
    found = logging.getLogger(name)
    if not any(isinstance(known, _WithoutSecrets) for known in found.filters):
        found.addFilter(_WithoutSecrets())
    return found


def log_failure(log: logging.Logger, what: str, error: BaseException) -> None:
    """Warn in a single sentence with the error in it. The traceback follows if the logger's level is DEBUG."""
    shown = error if log.isEnabledFor(logging.DEBUG) else None
    log.warning("databuild: %s: %s: %s", what, type(error).__name__, one_line(error), exc_info=shown)


@contextmanager
def tracebacks_logged(wanted: bool) -> Iterator[None]:
    """Within the block `log_failure` logs tracebacks, if they are wanted (`--debug`)."""
    package = logging.getLogger("databuild_dagster")
    before = package.level
    if wanted:
        package.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        package.setLevel(before)
