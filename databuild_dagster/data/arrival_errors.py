"""Why files from outside do not become a lot; each is raised before anything is recorded."""

from databuild_dagster.model.errors import Refused


class NotABoundary(Refused):
    """{asset} is {what}, so no lot of it can arrive."""

    hint = "Declare it: build_definitions([databuild_boundary({asset!r}, partitions_def=…), …])."


class NoSuchLot(Refused):
    """{lot!r} is no lot of {asset}: {why}"""

    hint = "Give one of its partition keys, or a lot id such as 20230227PT1H023."


class NothingGiven(Refused):
    """No files are given for {ref}."""

    hint = "Name them, or say --empty if there are none on purpose."


class FilesAndEmpty(Refused):
    """{ref} is said to be empty, and files are given."""

    hint = "Leave one of the two out."


class NoSuchFile(Refused):
    """There is no data file {path}."""

    hint = "Check the spelling; hidden files, and names that begin with _, are no data."


class HasDataAlready(Refused):
    """{ref} has arrived with {files}, so it is not empty."""

    hint = "If it is to be empty all the same, say --replace."


class SaidWrong(Refused):
    """{ref} is tainted, and {path} is among what was said to be wrong."""

    hint = "`databuild untaint` takes the taint back; or write the file again, or take it away."


class NoLandingFolder(Refused):
    """There is no folder {folder}, where the files of {asset} land."""

    hint = "Create it, or correct files=… of the boundary."
