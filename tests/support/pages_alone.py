"""Ask the pages of the package on the path: `python -m tests.support.pages_alone FOLDER PATH...` prints what it finds as JSON."""

from __future__ import annotations

import html
import json
import re
import sys
from pathlib import Path

from starlette.testclient import TestClient

import databuild_dagster
from databuild_dagster.feature import features
from databuild_dagster.web.application import MOUNT, make_application
from tests.support.pages_world import filled

#: The urls of links, and of forms that ask for a page.
LINK = re.compile(r'(?:href|method="get" action)="(/databuild/[^"#]*)"')


def main(folder: str, *paths: str) -> None:
    """Ask for each path, and for each page that one of the answers links to."""
    world = filled(Path(folder))
    client = TestClient(make_application(world.state_behind_pages()), raise_server_exceptions=False)
    answers = {path: client.get(path) for path in paths}
    links = {
        html.unescape(link).removeprefix(MOUNT).partition("?")[0]: html.unescape(link).removeprefix(MOUNT)
        for answer in answers.values()
        for link in LINK.findall(answer.text)
    }
    found = {
        "package": databuild_dagster.__file__,
        "features": [feature.name for feature in features()],
        "answers": {path: answer.status_code for path, answer in answers.items()},
        # A form without its fields is asked, too: the page is there, and refuses.
        "links": {path: client.get(link).status_code for path, link in links.items()},
    }
    world.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
