"""Records of the package's loggers hold no secret."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from databuild_dagster.model.logs import logger

PACKAGE = Path(__file__).parents[2] / "databuild_dagster"
#: Defines `logger`; adds a handler, and logs nothing.
EXEMPT = {"model/logs.py", "cli/process.py"}


def test_a_record_hides_secrets_in_its_message_its_arguments_and_its_exception(caplog):
    log = logger("databuild_dagster.tests.logs")

    try:
        raise ValueError("refused: http://alice:MaRk" + "@host")
    except ValueError:
        log.warning("databuild: password=%s of %s", "MaRk", "http://u:MaRk@h", exc_info=True)

    # Formatted here, because Spark gives the handlers of its process a format of its own.
    text = logging.Formatter().format(caplog.records[0])
    assert "databuild: password=*** of http://***@h" in text
    assert "ValueError: refused: http://***@host" in text


def test_every_module_logs_through_it():
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"\bgetLogger\((?!name\)\.setLevel)", path.read_text())
    }

    assert found - {"spark/session.py"} == EXEMPT
