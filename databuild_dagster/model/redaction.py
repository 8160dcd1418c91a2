"""From a text to the same text without secrets: passwords, tokens, keys, webhook paths and headers (rule 3.9).

Every message, log line, event, repr and tick that quotes a url, an option, a header or a foreign program's error passes here.
`RULES` find a secret by its form. A secret without a form, such as a password that a driver quotes alone, is registered
with `keep_secret` by the code that reads it.
"""

import re
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Final
from urllib.parse import quote, quote_plus

#: In the place of a secret.
HIDDEN: Final = "***"
#: A shorter secret is hidden by its form alone: hidden everywhere, it would garble other words.
MIN_LENGTH: Final = 8
#: Links of a chain of exceptions.
MAX_LINKS: Final = 50
#: Exceptions that a user's class may raise while it is printed; `KeyboardInterrupt` is not its own.
_WHILE_PRINTING: Final = (Exception, SystemExit)


@dataclass(frozen=True, slots=True)
class Rule:
    """A form of a secret; `shown` replaces it."""

    form: str
    #: A text without any of these words, in small letters, holds no such secret: most texts cost a few searches.
    words: tuple[str, ...]
    pattern: re.Pattern[str]
    shown: str = HIDDEN


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


#: Names of secrets, with or without words before and behind: sslpassword, fs.s3a.secret.key, AWS_ACCESS_KEY_ID.
_NAMES = (
    r"(?:passw(?:or)?d|passfile|passphrase|secret|credential|authorization|cookie"
    r"|(?:api|access|account|private|shared)[_.-]?key"
    r"|(?:access|auth|bearer|session|security|sas)[_.-]?token)"
)
#: Every name contains at least one of them.
_WORDS_OF_NAMES = (
    "pass",
    "secret",
    "credential",
    "authorization",
    "cookie",
    "key",
    "token",
    "signature",
    "sig",
    "pwd",
    "sas",
)
#: Words that are names of secrets only if they are the end of a name: db_pass and dbPass, and no bypass.
_LAST_WORDS = r"(?:token|signature|(?<![A-Za-z0-9])(?:sig|pwd|sas|pass)|(?-i:(?<=[a-z0-9])Pass))"
_QUOTE = r"""\\*["']?"""
_VALUE = (
    r"(?:(?:bearer|basic|token|digest)\s+)?"
    r"""(?:(\\*")[^"]*"?|(\\*')[^']*'?|[^\s&;"'<>\\][^\s&;"'<>]*)"""
)
#: Settings whose value may be a login of Oracle's: dsn, connect_string, connectionString.
_CONNECTION = r"(?:dsn|(?:conn|connect|connection)(?:[_.-]?(?:str|string|descriptor))?)"
#: Only its place tells it from `raw/orders@2024-01-01`, `owner/name@v1` and a path with an address of mail.
_LOGIN = r"""[^\s/@"'<>=:;,()]{0,128}/(?:\\*"[^"\\]{1,128}\\*"|[^\s/@"'<>][^\s@"'<>]{0,128})@"""

#: The lengths are limited, so that the time is proportional to the length of the text.
RULES: Final = (
    Rule(
        "parameters of a Spark Connect url",
        ("sc://",),
        _compiled(r"""(sc://[^\s;"'<>]{1,300});[^\s"'<>]+"""),
        rf"\1;{HIDDEN}",
    ),
    Rule(
        "path of a webhook",
        ("hook",),
        _compiled(
            r"""(https?://(?:hooks\.[^\s/"'<>]{1,200}|[^\s/"'<>]{0,200}webhook[^\s/"'<>]{0,200}"""
            r"""|discord(?:app)?\.com/api/webhooks))/[^\s"'<>]+"""
        ),
        rf"\1/{HIDDEN}",
    ),
    Rule(
        "value of an option, a setting or a header",
        _WORDS_OF_NAMES,
        _compiled(
            rf"((?:{_NAMES}[\w.-]{{0,60}}{_QUOTE}\s{{0,9}}[=:]"
            rf"|{_LAST_WORDS}(?:{_QUOTE}\s{{0,9}}=|\\*[\"']\s{{0,9}}:))\s{{0,9}}){_VALUE}"
        ),
        # Between the quotes, if there are some.
        rf"\1\2\3{HIDDEN}\2\3",
    ),
    # After a colon a slash or a question mark belongs to the password, unless a port follows. A hint has an example.
    # A container of Azure's, as in abfss://container@account.dfs.core.windows.net, is no user.
    Rule(
        "user and password of a url",
        ("@",),
        _compiled(
            r"""(://)(?!user:password@)(?!(?:(?<=abfs://)|(?<=abfss://))[a-z0-9$-]{1,63}@[\w.-]{1,200}\.dfs\.)"""
            r"""(?:[^\s/:@"'<>]{0,200}:(?!\d{1,5}(?:[/?\s]|$))[^\s"'<>]{0,500}"""
            r"""|[^\s/?#"'<>]{1,500})@"""
        ),
        rf"\1{HIDDEN}@",
    ),
    Rule(
        "user and password of an encoded url",
        ("%40",),
        _compiled(r"""(%3A%2F%2F)[^\s&"'<>/]{1,500}%40"""),
        rf"\1{HIDDEN}%40",
    ),
    Rule(
        "user and password of Oracle",
        ("jdbc:oracle:", "dsn", "conn"),
        _compiled(
            rf"(jdbc:oracle:\w{{1,10}}:|(?<![a-z0-9]){_CONNECTION}{_QUOTE}\s{{0,9}}[=:]\s{{0,9}}{_QUOTE}){_LOGIN}"
        ),
        rf"\1{HIDDEN}@",
    ),
    # Nothing else is followed by two slashes, a description, or a host with a port and a service.
    Rule(
        "user and password before an address of Oracle",
        ("@",),
        _compiled(
            rf"(?<![\w/.$#@-]){_LOGIN}"
            r"(?=//\w|\(\s{0,9}description|(?:[a-z][\w.-]{0,200}|\d{1,3}(?:\.\d{1,3}){3}):\d{2,5}/\w)"
        ),
        f"{HIDDEN}@",
    ),
    Rule(
        "token of a header",
        ("bearer", "basic"),
        _compiled(r"""\b(bearer|basic)\s{1,9}(?=[^\s"']{0,200}[0-9=_])[\w.~+/=-]{8,}"""),
        rf"\1 {HIDDEN}",
    ),
    # S3 answers to an expired token with the token.
    Rule(
        "element of XML",
        ("token", "secret", "accesskey", "credential"),
        _compiled(r"(<[\w:.-]{0,60}(?:token|secret|accesskey|credential)[\w.-]{0,60}>)[^<>]{1,8000}"),
        rf"\1{HIDDEN}",
    ),
    Rule(
        "key that its first letters name",
        ("akia", "asia", "gh", "xox", "eyj"),
        _compiled(
            r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_\w{20,}|github_pat_\w{20,}|xox[abeprs]-[\w-]{10,}"
            r"|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
        ),
    ),
    Rule(
        "private key",
        ("private key-----",),
        _compiled(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)"),
        rf"\1{HIDDEN}",
    ),
)
_NAME = re.compile(rf"{_NAMES}|{_LAST_WORDS}$", re.IGNORECASE)
_NAME_OF_CONNECTION = re.compile(rf"(?:^|[^a-z0-9]){_CONNECTION}$", re.IGNORECASE)
_LOGIN_ALONE = _compiled(rf"^\s*{_LOGIN}")

_kept: set[str] = set()
_kept_pattern: re.Pattern[str] | None = None


def keep_secret(*secrets: str | None) -> None:
    """Hide the secrets in all texts of this process from now on: as they are, percent-encoded and in base64."""
    global _kept_pattern
    new = {secret for secret in secrets if secret and len(secret) >= MIN_LENGTH} - _kept
    if not new:
        return
    _kept.update(new)
    forms = sorted({form for secret in _kept for form in _forms(secret)}, key=len, reverse=True)
    _kept_pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, forms))})(?![A-Za-z0-9])")


def without_secrets(text: str) -> str:
    """The text with `***` in the place of each secret."""
    if _kept_pattern is not None:
        text = _kept_pattern.sub(HIDDEN, text)
    lower = text.lower()
    for rule in RULES:
        if any(word in lower for word in rule.words):
            text = rule.pattern.sub(rule.shown, text)
    return text


def keep_secrets_of(settings: Mapping[str, Any]) -> None:
    """Hide the values of settings with names of secrets."""
    keep_secret(*(value for name, value in settings.items() if _is_secret(name, value)))


def values_without_secrets(value: Any) -> Any:
    """A value of JSON with `***` for each value whose name is that of a secret, and its texts without secrets."""
    match value:
        case str():
            return without_secrets(value)
        case Mapping():
            return {
                name: HIDDEN if _is_secret(name, found) else values_without_secrets(_without_login(name, found))
                for name, found in value.items()
            }
        case list() | tuple():
            return [values_without_secrets(found) for found in value]
        case _:
            return value


def repr_without_secrets(value: Any) -> str:
    """The repr of a dataclass with its fields shown by `values_without_secrets`."""
    shown = ", ".join(f"{field.name}={values_without_secrets(getattr(value, field.name))!r}" for field in fields(value))
    return f"{type(value).__name__}({shown})"


@contextmanager
def errors_without_secrets() -> Iterator[None]:
    """A boundary to Dagster, which stores the exceptions that pass it."""
    try:
        yield
    except BaseException as error:
        if (shown := hide_secrets_of(error)) is error:
            raise
        raise shown from shown.__cause__


class QuotedError(Exception):
    """The type and the text of an exception whose text has a secret in an attribute, or that Python cannot print."""

    #: Python itself records the exception in whose place this exception is raised, and would print it.
    __context__: BaseException | None = None


def text_of(value: object) -> str:
    """The text of any value. A class of a user may raise in `__str__`: the text then says so, and what was raised."""
    try:
        return str(value)
    except _WHILE_PRINTING as broken:
        try:
            why = f"{type(broken).__name__}: {broken}"
        except _WHILE_PRINTING:
            why = type(broken).__name__
        return f"its text cannot be printed, because its class raised {why}"


def traceback_of(error: BaseException) -> str:
    """The traceback as Python prints it, without secrets."""
    return without_secrets("".join(traceback.format_exception(hide_secrets_of(error))))


def hide_secrets_of(error: BaseException) -> BaseException:
    """Take the secrets out of an exception and of the exceptions that led to it, because Dagster and `logging` print them all.

    Returns the exception to raise: the same exception, or a `QuotedError`, which Python can always print.
    """
    return _cleaned(error, {})


def _cleaned(error: BaseException, seen: dict[int, BaseException]) -> BaseException:
    if id(error) in seen or len(seen) >= MAX_LINKS:
        return seen.get(id(error), error)
    seen[id(error)] = cleaned = error
    if not _hides_secrets(error):
        shown = without_secrets(f"{type(error).__name__}: {text_of(error)}")
        cleaned = seen[id(error)] = QuotedError(shown).with_traceback(error.__traceback__)
    elif isinstance(error, BaseExceptionGroup):
        members = [_cleaned(member, seen) for member in error.exceptions]
        if any(shown is not member for shown, member in zip(members, error.exceptions, strict=True)):
            cleaned = seen[id(error)] = error.derive(members).with_traceback(error.__traceback__)
    cause, context, is_without_context = error.__cause__, error.__context__, error.__suppress_context__
    for name, link in (("__cause__", cause), ("__context__", context)):
        _set(cleaned, name, None if link is None else _cleaned(link, seen))
    _set(cleaned, "__suppress_context__", is_without_context)
    return cleaned


def _hides_secrets(error: BaseException) -> bool:
    """Take the secrets out of an exception's own fields; whether Python can print it, and its text then has none."""
    try:
        _set(error, "args", tuple(without_secrets(arg) if isinstance(arg, str) else arg for arg in error.args))
        if notes := getattr(error, "__notes__", None):
            _set(error, "__notes__", [without_secrets(note) for note in notes])
        return without_secrets(text := str(error)) == text
    except _WHILE_PRINTING:
        return False


def _set(error: BaseException, name: str, value: object) -> None:
    """A class may refuse its fields, such as a frozen dataclass."""
    object.__setattr__(error, name, value)


def _is_secret(name: Any, value: Any) -> bool:
    """Whether a setting is a secret by its name; a provider of credentials is a class."""
    is_text = isinstance(name, str) and isinstance(value, str)
    return is_text and _NAME.search(name) is not None and not name.lower().endswith("provider")


def _without_login(name: Any, value: Any) -> Any:
    """The value without a login of Oracle's, which the name of the setting tells from a path."""
    is_text = isinstance(name, str) and isinstance(value, str)
    return _LOGIN_ALONE.sub(f"{HIDDEN}@", value) if is_text and _NAME_OF_CONNECTION.search(name) else value


def _forms(secret: str) -> Iterator[str]:
    encoded = secret.encode("utf-8", "backslashreplace")
    yield from (secret, quote(encoded, safe=""), quote_plus(encoded))
    yield from (form(encoded).decode().rstrip("=") for form in (b64encode, urlsafe_b64encode))
