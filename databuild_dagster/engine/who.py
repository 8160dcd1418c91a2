"""Who acts, in the words of the log: whoever sits before a command line or a notebook, by the name the system has for them."""

from __future__ import annotations

import getpass

#: What such actors begin with; the rest is a name, or missing where the system has none.
USER = "user"


def this_user() -> str:
    """user:NAME, or user alone: in a container the process may belong to nobody the system knows."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError, ImportError):  # The last two before Python 3.13.
        return USER
    # Bytes that are no text come as half characters, which no database takes.
    return f"{USER}:{name.encode('utf-8', 'replace').decode()}"
