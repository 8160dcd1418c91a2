"""Who may change the build state by the pages and the API: what `--read-only` and the environment of the web server say."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from databuild_dagster.model.errors import InvalidRequest
from databuild_dagster.model.redaction import keep_secret

#: The header in which a reverse proxy names the user that has logged in.
USER_HEADER_VARIABLE: Final = "DATABUILD_USER_HEADER"
#: The token of callers that are no pages, or the file that has it.
TOKEN_VARIABLE: Final = "DATABUILD_API_TOKEN"
TOKEN_FILE_VARIABLE: Final = "DATABUILD_API_TOKEN_FILE"
MIN_TOKEN: Final = 16
#: Names of this server, for people who act on its pages, with commas between them.
HOSTS_VARIABLE: Final = "DATABUILD_HOSTS"

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_HOST = re.compile(r"[a-z0-9]([a-z0-9_.-]{0,251}[a-z0-9])?")


class BadSetting(InvalidRequest):
    """{what} cannot be used: {why}."""

    hint = "Correct it or leave it out, and start the web server again."


@dataclass(frozen=True)
class Settings:
    """The settings of a web server."""

    read_only: bool = False
    user_header: str | None = None
    token: str | None = field(default=None, repr=False)
    #: In small letters, without ports.
    hosts: frozenset[str] = frozenset()


#: No proxy and no token: people act on pages under names that they type.
DEFAULTS: Final = Settings()


def settings_of_environment(*, read_only: bool = False, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings, with the token among the secrets that no message shows. Raises `BadSetting`."""
    header = environment.get(USER_HEADER_VARIABLE) or None
    if header is not None and not _HEADER_NAME.fullmatch(header):
        raise BadSetting(what=USER_HEADER_VARIABLE, value=header, why="it is no name of a header")
    return Settings(read_only, header, _token(environment), _hosts(environment))


def _hosts(environment: Mapping[str, str]) -> frozenset[str]:
    names = (name.strip().lower() for name in environment.get(HOSTS_VARIABLE, "").split(","))
    hosts = frozenset(name for name in names if name)
    for host in sorted(hosts):
        if not _HOST.fullmatch(host):
            why = f"{host!r} is no name of a host; give names without ports, such as pages.example, and commas between"
            raise BadSetting(what=HOSTS_VARIABLE, value=host, why=why)
    return hosts


def _token(environment: Mapping[str, str]) -> str | None:
    token, path = environment.get(TOKEN_VARIABLE), environment.get(TOKEN_FILE_VARIABLE)
    if token and path:
        why = f"{TOKEN_VARIABLE} gives a token too"
        raise BadSetting(what=TOKEN_FILE_VARIABLE, value="", why=why)
    what = TOKEN_VARIABLE
    if path:
        what = TOKEN_FILE_VARIABLE
        try:
            token = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise BadSetting(what=what, value="", why=f"the file cannot be read ({type(error).__name__})") from None
    elif not token:
        return None
    keep_secret(token)
    if not token or len(token) < MIN_TOKEN or not _TOKEN.fullmatch(token):
        why = f"a token has at least {MIN_TOKEN} letters, digits and signs, and no space"
        raise BadSetting(what=what, value="", why=why)
    return token
