"""Starts run workers on its host, as a kubelet does: `POST /runs` starts one, `GET /runs/ID` says what became of it.

    python -m tests.cluster.agent

It imports nothing but the standard library, so that it starts with its host.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

PORT: Final = 7001
LOGS: Final = Path("/mnt/host/runs")

_runs: dict[str, subprocess.Popen[bytes]] = {}
_lock = threading.Lock()


class _Agent(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with _lock:
            # A request that is repeated, because its answer was lost, starts no second worker.
            if asked["id"] not in _runs:
                with (LOGS / f"{asked['id']}.log").open("wb") as log:
                    _runs[asked["id"]] = subprocess.Popen(
                        asked["command"], env={**os.environ, **asked["environment"]}, stdout=log, stderr=log
                    )
        self._answer("started")

    def do_GET(self) -> None:
        run = _runs.get(self.path.removeprefix("/runs/"))
        code = None if run is None else run.poll()
        self._answer("unknown" if run is None else "runs" if code is None else "failed" if code else "succeeded")

    def do_DELETE(self) -> None:
        if run := _runs.get(self.path.removeprefix("/runs/")):
            run.terminate()
        self._answer("terminated" if run else "unknown")

    def _answer(self, word: str) -> None:
        body = word.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    LOGS.mkdir(exist_ok=True)
    ThreadingHTTPServer(("0.0.0.0", PORT), _Agent).serve_forever()
