"""The README as an index shows it: its links are absolute, or plain text as long as the project has no address.

`DATABUILD_PROJECT_URL` is the address under which the files of a version are, without a slash at its end; `tools/release.py` sets it.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")


class PublishedReadme(MetadataHookInterface):
    """The hook of the core; the plain distribution's hook takes `published` from here."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": published(text)}


def published(text: str) -> str:
    """The text without relative links."""
    address = os.environ.get("DATABUILD_PROJECT_URL")

    def absolute(link: re.Match[str]) -> str:
        if "://" in link["target"]:
            return link[0]
        if not address:
            # A picture without an address is left out: its words repeat the text around it.
            return "" if link["picture"] else link["text"]
        return f"{link['picture']}[{link['text']}]({address}/{link['target']})"

    return _LINK.sub(absolute, text)
