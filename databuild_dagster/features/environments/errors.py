"""The refusals of environments (rule 16)."""

from databuild_dagster.model.errors import InvalidRequest, NotFound, Refused
from databuild_dagster.store.errors import StoreAway, StoreUnusable


class EnvironmentExists(Refused):
    """There is an environment {name} of this build state already."""

    hint = "Choose a different name, or remove it: `databuild env drop {name}`."


class EnvironmentClosing(StoreUnusable):
    """The environment {name} is being removed."""

    hint = "`databuild env drop {name}` removes the rest."


class BaseIsEnvironment(Refused):
    """{home} is the home of the environment {name}, and no environment has an environment as its base."""

    hint = "Unset DATABUILD_ENV, or set DAGSTER_HOME to the home of the base."


class EnvironmentElsewhere(Refused):
    """The environment {name} was opened on {host}, in {home}."""

    hint = "Choose a different name, or run `databuild env drop {name}` on {host}. A day after its time, every host may free the name."


class BaseMoved(Refused):
    """The environment {name} was opened when its base was in {base}, which is not there."""

    hint = (
        "Move the base back with its environments, or put links to {here} and {here}.environments there. Otherwise "
        "`databuild env drop {name}` removes the environment."
    )


class BadEnvironmentName(InvalidRequest):
    """{value!r} is no name of an environment."""

    hint = "A name has up to 40 lower-case letters, digits and hyphens, and begins with a letter or digit."


class BadDays(InvalidRequest):
    """An environment cannot be kept for {value} days."""

    hint = "--keep takes a number above 0, and at most {most}."


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
    """The environment {name} cannot be removed while {what}."""

    hint = "Wait for its end, or stop it, then repeat the command."


class BaseAway(StoreAway):
    """The base of the environment {name} cannot be reached: {why}."""

    hint = "Run the command again when the base is there. What the environment has can be read meanwhile."


class BaseChanged(StoreUnusable):
    """The build state in {place} is not the base that the environment {name} was opened on: {why}."""

    hint = (
        "Correct DATABUILD_DB_URL or DAGSTER_HOME if it names the wrong one. After `databuild log take-over` of the base, "
        "`databuild env attach {name}` continues. Otherwise `databuild env drop {name}` removes the environment."
    )


class CopiedBase(StoreUnusable):
    """The environment {name} belongs to the build state in {base}, of which that in {place} is a copy."""

    hint = "Run the command there, with DAGSTER_HOME={base}, or open an environment with a different name here."


class EnvironmentOver(StoreUnusable):
    """The time of the environment {name} is over, so it borrows nothing more."""

    hint = "`databuild env drop {name}` removes it."


class NothingBuilt(Refused):
    """The environment {name} has built nothing that is live, so there is nothing to promote."""

    hint = "Build in it: `databuild --env {name} build REFS`."


class NothingOfThese(NothingBuilt):
    """The environment {name} has built nothing of {refs} that is live, so there is nothing of it to promote."""

    hint = "`databuild env promote {name} --dry-run` lists what it has built."


class NotPromoter(Refused):
    """{actor} may not promote of the environment {name}: {whose}."""

    hint = "Ask one of these actors, or deploy definitions whose `promoters` name {actor}."


class TooManyToPromote(Refused):
    """The environment {name} has {n} refs to promote, and a promotion takes {most}."""

    hint = "Promote it in parts, inputs first: `databuild env promote {name} ASSET`."
