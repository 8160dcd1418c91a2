"""The jobs of one tag or session in the UI of a Spark server: other tests use the server too."""

from __future__ import annotations

import json
import urllib.request
from http.client import HTTPException
from typing import Any

#: The first answer takes seconds on a busy machine.
TIMEOUT_SECONDS = 60

#: No proxy stands between a test and its own machine.
_ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


def spark_jobs(url: str, word: str, *, running: bool = False) -> set[int]:
    """The jobs with `word` in a tag, all or those that run now; raises `OSError` where the UI does not answer."""
    try:
        (application,) = _answer(f"{url}/api/v1/applications")
        jobs = _answer(f"{url}/api/v1/applications/{application['id']}/jobs{'?status=running' if running else ''}")
    except (HTTPException, ValueError) as error:
        raise OSError(f"the Spark UI at {url} gave no answer about jobs: {error}") from error
    return {job["jobId"] for job in jobs if any(word in tag for tag in job["jobTags"])}


def nothing_runs(url: str, word: str) -> bool:
    """False also where the UI does not answer: that says nothing about the jobs."""
    try:
        return not spark_jobs(url, word, running=True)
    except OSError:
        return False


def _answer(url: str) -> Any:
    with _ask(url, timeout=TIMEOUT_SECONDS) as answer:
        return json.load(answer)
