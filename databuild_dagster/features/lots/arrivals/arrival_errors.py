"""Refusals of arrivals and adoptions, each raised before anything is recorded."""

from databuild_dagster.model.errors import Refused


class NotABoundary(Refused):
    """{asset} is {what}, so no lot of it can arrive."""

    hint = "Declare it: build_definitions([databuild_boundary({asset!r}, partitions_def=…), …])."


class NoSuchLot(Refused):
    """{lot!r} is no lot of {asset}: {why}"""

    hint = "Give one of its partition keys, or a lot id such as 20230227PT1H023."


class NothingGiven(Refused):
    """No files are given for {ref}."""

    hint = "Name them, or give --empty if there are none on purpose."


class FilesAndEmpty(Refused):
    """--empty is given for {ref}, and files are given, too."""

    hint = "Leave one of the two out."


class NoSuchFile(Refused):
    """There is no data file {path}."""

    hint = "Name a file that exists; hidden files, and names that begin with _, are no data."


class HasDataAlready(Refused):
    """{ref} has arrived with {files}, so it is not empty."""

    hint = "Give --replace to make it empty all the same."


class SaidWrong(Refused):
    """{ref} is tainted, and {path} is among its files."""

    hint = "`databuild untaint` removes the taint; or write the file again, or remove it."


class NoLandingFolder(Refused):
    """The landing folder {folder} of {asset} does not exist."""

    hint = "Create it, or correct files=… of the boundary."


class NotAdoptable(Refused):
    """{asset} is {what}, so its partitions cannot be adopted."""

    hint = "{instead}"


class NoFiles(Refused):
    """No files for {named}: none match {pattern}."""

    hint = "Correct the pattern, or name the partitions that have files with --partitions."


class ListedTwice(Refused):
    """{path} would belong to {one} and to {other}."""

    hint = "Narrow the pattern: the files of two partitions lie apart."


class OwnFiles(Refused):
    """{path} lies in the warehouse {warehouse}, whose files are databuild's own."""

    hint = "Adopt files of other programs; `databuild show REF` shows the files of a built partition."


class CannotRead(Refused):
    """{path} cannot be a file of {ref}: {why}."""

    hint = "Fix or remove it, or name files or partitions that leave it out."


class ColumnsDiffer(Refused):
    """{path}, for {ref}, does not fit: {why}, unlike {other}."""

    hint = "Write it again with the same columns, or leave that partition out; {allow}."


class LiveAlready(Refused):
    """{named} {verb} live already with other data."""

    hint = "--live keep leaves it as it is; --live replace makes these files its new instance."


class SaidToBeWrong(Refused):
    """{ref} was adopted from these files, and tainted since."""

    hint = "`databuild show {ref}` names the taint, `databuild untaint` removes it; or correct the files first."
