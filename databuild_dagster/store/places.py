"""Paths of manifests, recorded relative to the home that holds the store (rule 3.10).

The home is the folder of the SQLite file. A copied or moved home then names its own files, and those of the folder HOME.environments
beside it. Paths elsewhere, urls, and all paths of a PostgreSQL store are recorded whole.
"""

from typing import Final, TypeVar

from msgspec.structs import replace

from databuild_dagster.model import events as e

Output = TypeVar("Output", e.OutputFact, e.Arrival, e.Birth)
#: The types of events with manifests; no other payload has a path.
WITH_PATHS: Final = e.names_of(
    e.JobRunSucceeded, e.LotArrived, e.InstancesReturned, e.InstancesBorrowed, e.InstancesPromoted
)

#: Behind the path of a home: the folder of its environments, of which the base may have taken data.
BESIDE: Final = ".environments/"


class Places:
    """Translates between recorded and whole paths."""

    def __init__(self, home: str | None) -> None:
        self.home = home
        self._inside = None if home is None else home.rstrip("/") + "/"

    def whole(self, uri: str | None) -> str | None:
        """The path or url that a recorded path or url means."""
        if uri is None or self._inside is None or uri.startswith("/") or "://" in uri:
            return uri
        return self._inside[:-1] + uri if uri.startswith(BESIDE) else self._inside + uri

    def recorded(self, uri: str) -> str:
        """A whole path or url as the log keeps it."""
        if self._inside is None:
            return uri
        if uri.startswith(self._inside[:-1] + BESIDE):
            return uri[len(self._inside) - 1 :]
        inside = uri.removeprefix(self._inside)
        # `whole` would read it as a path beside the home.
        return uri if inside.startswith(BESIDE) else inside

    def holds(self, root: str) -> bool:
        """Whether a folder is inside the home."""
        return self._inside is not None and root.startswith(self._inside)

    def fact(self, fact: e.Fact) -> e.Fact:
        """A fact as the log keeps it. What returns has paths as its rows have them, which is so already."""
        match fact:
            case e.JobRunSucceeded(runs=runs):
                kept = [replace(run, outputs=self._outputs(run.outputs)) for run in runs]
                return replace(fact, runs=tuple(kept))
            case e.LotArrived(arrivals=arrivals):
                return replace(fact, arrivals=self._outputs(arrivals))
            case e.InstancesBorrowed(births=births) | e.InstancesPromoted(births=births):
                return replace(fact, births=self._outputs(births))
        return fact

    def _outputs(self, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        return tuple([self._output(output) for output in outputs])

    def _output(self, output: Output) -> Output:
        manifest = output.manifest
        if manifest is None or (uri := self.recorded(manifest.uri)) == manifest.uri:
            return output
        return replace(output, manifest=replace(manifest, uri=uri))
