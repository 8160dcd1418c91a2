"""The settings of the web server: what the environment gives, and what it may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from databuild_dagster.model.redaction import without_secrets
from databuild_dagster.web.settings import BadSetting, Settings, settings_of_environment

TOKEN = "Wv3-a-token-of-a-test"


def test_the_environment_gives_the_header_and_the_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")

    by_value = settings_of_environment(
        environment={"DATABUILD_API_TOKEN": TOKEN, "DATABUILD_USER_HEADER": "X-Forwarded-User"}
    )
    by_file = settings_of_environment(read_only=True, environment={"DATABUILD_API_TOKEN_FILE": str(file)})

    assert by_value == Settings(user_header="X-Forwarded-User", token=TOKEN)
    assert by_file == Settings(read_only=True, token=TOKEN)
    assert settings_of_environment(environment={}) == Settings()


def test_the_environment_gives_the_names_of_the_server() -> None:
    settings = settings_of_environment(environment={"DATABUILD_HOSTS": "Pages.example, build.internal,"})

    assert settings.hosts == {"pages.example", "build.internal"}


def test_the_token_is_in_no_message_and_no_repr() -> None:
    settings = settings_of_environment(environment={"DATABUILD_API_TOKEN": TOKEN})

    assert TOKEN not in repr(settings)
    assert without_secrets(f"it is {TOKEN} now") == "it is *** now"


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"DATABUILD_USER_HEADER": "X Forwarded"}, "DATABUILD_USER_HEADER cannot be used: it is no name of a header"),
        ({"DATABUILD_HOSTS": "https://pages.example:8443"}, "'https://pages.example:8443' is no name of a host"),
        ({"DATABUILD_API_TOKEN": "short"}, "a token has at least 16 letters"),
        ({"DATABUILD_API_TOKEN": "with spaces in it all over"}, "and no space"),
        ({"DATABUILD_API_TOKEN_FILE": "/no/such/file"}, "the file cannot be read (FileNotFoundError)"),
        ({"DATABUILD_API_TOKEN_FILE": "/x", "DATABUILD_API_TOKEN": TOKEN}, "DATABUILD_API_TOKEN gives a token too"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_one_sentence(environment: dict[str, str], why: str) -> None:
    with pytest.raises(BadSetting) as refused:
        settings_of_environment(environment=environment)

    assert why in refused.value.message
    assert environment.get("DATABUILD_API_TOKEN", "-" * 20) not in str(refused.value)
