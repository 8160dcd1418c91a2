"""What the base of an environment says of instances that are about to be read, also before a tick has followed it (rule 16.8)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from databuild_dagster.data.environment import environment_of
from databuild_dagster.data.home import lacks_store, store_url_of_home
from databuild_dagster.model.logs import logger
from databuild_dagster.model.wording import one_line
from databuild_dagster.store.errors import NewerStore, StoreUnusable
from databuild_dagster.store.queries.instances import InstanceQueries, Taint, TaintLink
from databuild_dagster.store.queries.queries import Queries
from databuild_dagster.store.store import Store

_log = logger(__name__)


def wrong_in_base(queries: Queries, uuids: Iterable[str]) -> dict[str, str | None]:
    """The instances that the base has tainted, with the reason, or whose data it has removed, with None.

    Empty outside an environment, and while the base cannot be asked, which is logged.
    """
    home = queries.places.home
    if home is None or (environment := environment_of(home)) is None:
        return {}
    base, asked = Path(environment.base), list(uuids)
    url = store_url_of_home(base)
    why = f"it is not in {base}" if url is not None else f"dagster.yaml in {base} places its storage"
    if url is not None and not lacks_store(base, url):
        try:
            with closing(Store(url)) as store:
                of_base = InstanceQueries(store)
                tainted = of_base.taints_in_force(asked)
                removed = of_base.removed(asked)
        except (StoreUnusable, NewerStore) as error:
            why = one_line(error.message)
        else:
            reasons = _act_here(queries, tainted) if tainted else {}
            return {uuid: "; ".join(found) for uuid, found in reasons.items()} | dict.fromkeys(removed)
    _log.warning(
        "databuild: the base of the environment %s does not answer, so a taint there is not seen: %s",
        environment.name,
        why,
    )
    return {}


def _act_here(queries: Queries, tainted: Mapping[str, Sequence[Taint]]) -> dict[str, list[str]]:
    """By instance, the reasons of taints in the base, but not of those that were followed and are canceled in the environment."""
    here: dict[str, list[TaintLink]] = defaultdict(list)
    for link in queries.instances.taint_links(tainted):
        here[link.uuid].append(link)
    found: dict[str, list[str]] = defaultdict(list)
    for uuid, taints in tainted.items():
        for taint in taints:
            # An instance that was borrowed too late has it by a further id.
            names = (taint.taint_id, f"{taint.taint_id}.")
            known = [link for link in here[uuid] if link.taint_id == names[0] or link.taint_id.startswith(names[1])]
            if not known or any(link.is_in_force for link in known):
                found[uuid].append(taint.reason)
    return found
