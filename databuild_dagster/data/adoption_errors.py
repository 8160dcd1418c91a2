"""Why partitions that exist already are not taken over; each is raised before anything is recorded."""

from databuild_dagster.model.errors import Refused


class NotAdoptable(Refused):
    """{asset} is {what}, so its partitions are not for us to record."""

    hint = "{instead}"


class NoFiles(Refused):
    """No files for {named}: none match {pattern}."""

    hint = "Correct the pattern, or name the partitions that have files with --partitions."


class ListedTwice(Refused):
    """{path} would belong to {one} and to {other}."""

    hint = "Narrow the pattern: the files of two partitions lie apart."


class OwnFiles(Refused):
    """{path} lies in the warehouse {warehouse}, whose files are databuild's own."""

    hint = "Adopt what others have written; `databuild show REF` tells what a partition of ours holds."


class CannotRead(Refused):
    """{path} cannot be a file of {ref}: {why}."""

    hint = "Mend it or take it away, or name files or partitions that leave it out."


class ColumnsDiffer(Refused):
    """{path}, for {ref}, does not fit: {why}, unlike {other}."""

    hint = "Write it again with the same columns, or leave that partition out; {allow}."


class LiveAlready(Refused):
    """{named} {verb} live already with other data."""

    hint = "--live keep leaves it as it is; --live replace makes these files its new instance."


class SaidToBeWrong(Refused):
    """{ref} was adopted from these very files, and tainted since."""

    hint = "`databuild show {ref}` names the taint, `databuild untaint` takes it back; or correct the files first."
