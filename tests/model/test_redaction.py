"""Each form of a secret, alone and within the texts of other programs."""

from __future__ import annotations

import traceback
from base64 import b64encode
from dataclasses import dataclass
from time import process_time
from urllib.parse import quote

import pytest

from databuild_dagster.model.errors import Refused
from databuild_dagster.model.redaction import (
    RULES,
    QuotedError,
    errors_without_secrets,
    hide_secrets_of,
    keep_secret,
    keep_secrets_of,
    repr_without_secrets,
    text_of,
    traceback_of,
    values_without_secrets,
    without_secrets,
)
from databuild_dagster.model.wording import one_line
from tests.support.unprintable import ODD, NoText, NoTextEither

#: In every text with a secret, and nowhere else.
MARK = "MaRk"

FORMS = {
    "userinfo": ("postgresql://alice:MaRk@host/db", "postgresql://***@host/db"),
    "userinfo with an @": ("cannot use postgresql://alice:s3@MaRk@host/db", "cannot use postgresql://***@host/db"),
    "userinfo with a slash": ("postgresql://alice:s3/MaRk@host/db", "postgresql://***@host/db"),
    "userinfo with a question mark": ("postgresql://alice:s3?MaRk@host/db", "postgresql://***@host/db"),
    "a password with a container of Azure's": ("abfss://box:MaRk@us.dfs.core.windows.net", "abfss://***@us.dfs.core.windows.net"),
    "a token as user": ("https://MaRk@git.example/x", "https://***@git.example/x"),
    "an encoded url": ("to=postgresql%3A%2F%2Fa%3AMaRk%40host", "to=postgresql%3A%2F%2F***%40host"),
    "a query": ("postgresql://h:1/db?user=alice&password=MaRk&x=1", "postgresql://h:1/db?user=alice&password=***&x=1"),
    "sslpassword": ("h/db?sslpassword=MaRk", "h/db?sslpassword=***"),
    "passfile": ("h/db?passfile=/home/MaRk cannot be used", "h/db?passfile=*** cannot be used"),
    "a setting": ("spark.hadoop.fs.s3a.secret.key=MaRk", "spark.hadoop.fs.s3a.secret.key=***"),
    "a repr of settings": ("{'fs.s3a.access.key': 'MaRk x'}", "{'fs.s3a.access.key': '***'}"),
    "JSON": ('{"password": "MaRk x", "a": 1}', '{"password": "***", "a": 1}'),
    "JSON in JSON": (r'{"text": "{\"token\": \"MaRk\"}"}', r'{"text": "{\"token\": \"***\"}"}'),
    "the environment": ("AWS_SECRET_ACCESS_KEY=MaRk", "AWS_SECRET_ACCESS_KEY=***"),
    "a header": ("Authorization: Bearer MaRk", "Authorization: ***"),
    "a header's repr": ("{'Authorization': 'Bearer MaRk'}", "{'Authorization': '***'}"),
    "a bearer alone": ("refused Bearer 0123456MaRk.", "refused Bearer ***"),
    "Spark Connect": ("sc://h:1/;user_id=x;token=MaRk is", "sc://h:1/;*** is"),
    "a header of Spark Connect": ("sc://h:1/;x-team=MaRk is", "sc://h:1/;*** is"),
    "a signed url": ("https://a.example/c?sv=1&sig=MaRk", "https://a.example/c?sv=1&sig=***"),
    "a webhook": ("POST https://hooks.slack.com/services/T0/MaRk: 404", "POST https://hooks.slack.com/*** 404"),
    "a webhook by its path": ("https://discord.com/api/webhooks/1/MaRk", "https://discord.com/api/webhooks/***"),
    "an element of XML": ("<Error><Token-0>MaRk</Token-0></Error>", "<Error><Token-0>***</Token-0></Error>"),
    "an access key id": ("AKIA0123456789ABCDEF", "***"),
    "a token of GitHub": ("used ghp_0123456789abcdefghijMaRk", "used ***"),
    "a name with pass as its last word": ("{'db_pass': 'MaRk x'}", "{'db_pass': '***'}"),
    "the same in camel case": ("at h;dbPass=MaRk", "at h;dbPass=***"),
    "a dsn of Oracle": ("{'dsn': 'kate/MaRk@db'}", "{'dsn': '***@db'}"),
    "a connect string": ("connect_string=kate/MaRk@db.tns", "connect_string=***@db.tns"),
    "Oracle's JDBC": ("no jdbc:oracle:thin:kate/MaRk@//db/x", "no jdbc:oracle:thin:***@//db/x"),
    "Oracle's JDBC with a quoted password": ('jdbc:oracle:oci:kate/"Ma@MaRk"@db', "jdbc:oracle:oci:***@db"),
    "Oracle's address": ("cannot connect as kate/MaRk@db.internal:1521/xe", "cannot connect as ***@db.internal:1521/xe"),
    "Oracle's address with slashes": ("cannot connect as 'kate/MaRk@//db/xe'", "cannot connect as '***@//db/xe'"),
    "Oracle's description": ("kate/MaRk@(DESCRIPTION=(X=1))", "***@(DESCRIPTION=(X=1))"),
    "a private key": ("-----BEGIN PRIVATE KEY-----\nMaRk\n-----END PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----***"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_secret_is_hidden_by_its_form_and_the_rest_is_shown(name):
    text, shown = FORMS[name]

    assert without_secrets(text) == shown
    assert without_secrets(shown) == shown
    assert one_line(f"It failed:\n{text}") == f"It failed: {' '.join(shown.split())}"


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/sales@2024-01-01/manifest.json",
        "abfss://box@us.dfs.core.windows.net/sales@2024-01-01/manifest.json",
        "sqlite:////home/a@b/databuild.db",
        "http://127.0.0.1:4040/jobs@v1",
        "sc://localhost:15002",
        "Use postgresql+psycopg://user:password@host/database in DATABUILD_DB_URL.",
        "Syntax error at or near token: 'x'",
        "The partition key: 2024-01-01 of secrets@2024 is live",
        "Basic authentication fails",
        "raw/orders@2024-01-01, raw/orders@2024-01-01-10:00 and raw/x@DE|2024-01-01",
        "uses: owner/name@v1, @scope/name@1.0, /home/users/kate@mail.example and git@host:22/x",
        "bypass=1 and compass: 'north', passing=3, and db_pass is missing",
        "jdbc:oracle:thin:@//db:1521/xe, jdbc:oracle:thin:kate@db and dsn=db/xe",
        "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message><Key>a/b</Key></Error>",
    ],
)
def test_a_text_without_a_secret_is_unchanged(text):
    assert without_secrets(text) == text


def test_each_rule_has_a_text_that_no_other_rule_mends():
    texts = [text for text, _ in FORMS.values()]

    needed = {
        rule.form
        for rule in RULES
        for text in texts
        if [other.form for other in RULES if other.pattern.search(text)] == [rule.form]
    }

    assert needed == {rule.form for rule in RULES}


@pytest.mark.parametrize(
    "piece", ["password", "://a:", "sc://", "token=", "https://webhook", "eyJ", "bearer ", "\\'", "a/", "dsn=a/"]
)
def test_a_text_of_megabytes_takes_time_proportional_to_its_length(piece):
    def seconds(length: int) -> float:
        began_at = process_time()
        without_secrets("password=://@%40sc://" + piece * (length // len(piece)))
        return process_time() - began_at

    # A time of the square of the length would be 64 times as long.
    assert seconds(400_000) < 24 * max(seconds(50_000), 0.005)


@pytest.mark.parametrize(
    "encode", [str, lambda text: quote(text, safe=""), lambda text: b64encode(text.encode()).decode()]
)
def test_a_kept_secret_is_hidden_without_a_form(encode):
    secret = f"it/is {MARK}+kept"
    keep_secret(secret)

    assert without_secrets(f"could not resolve {encode(secret)}, sorry").startswith("could not resolve ***")


def test_a_short_secret_and_part_of_a_word_are_not_hidden():
    keep_secret("x", "", None, "postgrez")

    assert without_secrets("x of postgrezql") == "x of postgrezql"


def test_the_value_of_a_name_of_a_secret_is_hidden_in_json_and_the_rest_is_shown():
    config = {"url": "sc://h/;token=MaRk", "api": {"token": "MaRk", "n": 3}, "list": ["x://u:MaRk@h"], "key": "2024"}

    shown = values_without_secrets(config)

    assert shown == {"url": "sc://h/;***", "api": {"token": "***", "n": 3}, "list": ["x://***@h"], "key": "2024"}


def test_pass_as_the_last_word_of_a_name_and_a_login_of_oracle_are_hidden_in_json():
    config = {"db_pass": "MaRk", "dbPass": "MaRk", "dsn": "kate/MaRk@db", "connectionString": "kate/MaRk@db"}
    paths = {"bypass": "yes", "path": "owner/name@v1", "ref": "raw/orders@2024-01-01", "dsn": "db/xe"}

    shown = values_without_secrets({"ops": {"x": {"config": config}}, **paths})

    hidden = {"db_pass": "***", "dbPass": "***", "dsn": "***@db", "connectionString": "***@db"}
    assert shown == {"ops": {"x": {"config": hidden}}, **paths}


def test_a_login_of_oracle_is_hidden_in_a_note_and_in_a_cause():
    error, login = ValueError("no answer"), "jdbc:oracle:thin:kate/MaRk@//db"
    error.add_note(f"at {login}")
    error.__cause__ = KeyError(login)

    assert MARK not in traceback_of(error)


def test_a_provider_of_credentials_is_no_secret():
    settings = {"fs.s3a.aws.credentials.provider": "org.example.Provider", "fs.s3a.secret.key": f"{MARK}-settings"}

    keep_secrets_of(settings)

    assert values_without_secrets(settings) == {**settings, "fs.s3a.secret.key": "***"}
    assert without_secrets(f"{MARK}-settings org.example.Provider") == "*** org.example.Provider"


def test_the_repr_of_a_dataclass_hides_secrets():
    @dataclass(frozen=True)
    class Service:
        url: str
        config: dict[str, str]

    shown = repr_without_secrets(Service("http://u:MaRk@h", {"password": "MaRk", "n": "1"}))

    assert shown == "Service(url='http://***@h', config={'password': '***', 'n': '1'})"


def test_an_error_of_ours_hides_the_secrets_of_its_facts():
    error = Refused(why="postgresql://alice:MaRk@host/db does not answer")

    assert MARK not in f"{error} {error!r} {error.message} {error.args}"


class Composed(Exception):
    """Composes its text from an attribute."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def __str__(self) -> str:
        return f"no answer of {self.url}"


def test_exceptions_that_pass_a_boundary_hold_no_secret_and_keep_their_chain():
    with pytest.raises(RuntimeError) as caught, errors_without_secrets():
        try:
            try:
                raise Composed("http://u:MaRk@h")
            except Composed as first:
                raise ValueError("password=MaRk") from first
        except ValueError as second:
            second.add_note("token=MaRk")
            raise RuntimeError("Authorization: Bearer MaRk") from second

    shown = "".join(traceback.format_exception(caught.value))
    assert MARK not in shown.replace('"http://u:MaRk@h"', "").replace('"password=MaRk"', "").replace(
        '"token=MaRk"', ""
    ).replace('"Authorization: Bearer MaRk"', "")
    assert isinstance(caught.value.__cause__, ValueError)
    assert str(caught.value.__cause__.__cause__) == "Composed: no answer of http://***@h"


def test_an_exception_that_composes_its_text_becomes_a_quotation_of_it():
    with pytest.raises(QuotedError) as caught, errors_without_secrets():
        raise Composed("http://u:MaRk@h")

    assert str(caught.value) == "Composed: no answer of http://***@h"
    assert caught.value.__suppress_context__


def test_members_of_a_group_hold_no_secret():
    with pytest.raises(ExceptionGroup) as caught, errors_without_secrets():
        raise ExceptionGroup("two", [ValueError("password=MaRk"), ValueError("2")])

    assert [str(member) for member in caught.value.exceptions] == ["password=***", "2"]


@pytest.mark.parametrize("name", ODD)
def test_an_exception_that_cannot_be_printed_is_replaced_with_its_causes(name):
    error = ODD[name]()

    shown = hide_secrets_of(error)

    printed = "".join(traceback.format_exception(shown))
    assert type(error).__name__ in printed
    assert MARK not in printed
    assert traceback_of(error) == printed
    assert type(error).__name__ in traceback_of(shown)


def test_an_exception_in_the_place_of_one_that_cannot_be_printed_is_printed_alone():
    with pytest.raises(QuotedError) as raised, errors_without_secrets():
        raise ODD["fields"]()

    assert traceback_of(raised.value).endswith("QuotedError: OddFields: \n")


def test_the_text_of_an_exception_that_has_none_says_what_its_class_raised():
    assert text_of(ValueError("a\nb")) == "a\nb"
    assert text_of(NoText()) == "its text cannot be printed, because its class raised RuntimeError: no text"
    assert one_line(NoTextEither()) == "its text cannot be printed, because its class raised NoText"
