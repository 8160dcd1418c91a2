"""The refusals of environments (rule 16)."""

from databuild_dagster.model.errors import InvalidRequest, NotFound, Refused
from databuild_dagster.store.errors import StoreUnusable


class EnvironmentExists(Refused):
    """There is an environment {name} of this build state already."""

    hint = "Choose a different name, or remove it: `databuild env drop {name}`."


class EnvironmentClosing(StoreUnusable):
    """The environment {name} is being removed."""

    hint = "`databuild env drop {name}` removes the rest."


class BaseIsEnvironment(Refused):
    """{home} is the home of the environment {name}, and no environment has an environment as its base."""

    hint = "Unset DATABUILD_ENV, or set DAGSTER_HOME to the home of the base."


class BaseElsewhere(Refused):
    """The build state of {home} is not in its SQLite file, and other databases have no environments yet."""


class BadEnvironmentName(InvalidRequest):
    """{value!r} is no name of an environment."""

    hint = "A name has up to 40 lower-case letters, digits and hyphens, and begins with a letter or digit."


class BadRoot(InvalidRequest):
    """{value} cannot take the data of an environment: {why}."""

    hint = "Name an empty or new folder that is in no Dagster home by --root, or leave --root out."


class NoEnvironment(NotFound):
    """This build state has no environment {name}."""

    hint = "`databuild env list` lists its environments."


class NotOpened(Refused):
    """The environment {name} was not opened to its end, so nothing is built in it."""

    hint = "`databuild env create {name}` continues."


class InUse(Refused):
    """The environment {name} cannot be removed while {holder} builds {job} in it."""

    hint = "Wait for its end, or stop that process, then repeat the command."


class BaseAway(StoreUnusable):
    """The base of the environment {name} is not in {home} any longer."""

    hint = "Bring the home back to its place, or remove the folder of the environment."


class BaseChanged(StoreUnusable):
    """The build state in {home} is not the base that the environment {name} was opened on: {why}."""

    hint = "`databuild env drop {name}` removes the environment, and `databuild env create {name}` opens it on the present state."


class EnvironmentOver(StoreUnusable):
    """The time of the environment {name} is over, so it borrows nothing more."""

    hint = "`databuild env drop {name}` removes it."


class NothingBuilt(Refused):
    """The environment {name} has built nothing that is live, so there is nothing to promote."""

    hint = "Build in it: `databuild --env {name} build REFS`."


class TooManyToPromote(Refused):
    """The environment {name} has {n} refs to promote, and a promotion takes {most}."""

    hint = "Promote it in parts, inputs first: `databuild env promote {name} ASSET`."
