"""A chain of three deterministic assets, whose code a person edits and edits back (rule 4.9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from databuild_dagster.model import commands as c
from databuild_dagster.model.datasets import CodeSpec, DatasetSpec
from databuild_dagster.model.events import InstancesReturned, MadeWith, OutputFact, RunSuccess, TaintCreated
from databuild_dagster.model.refs import Ref
from tests.support.catalog import HERE, dataset
from tests.support.world import COMPLETE, World

NEEDS = {"a": (), "b": ("a",), "c": ("b",)}


def spec(asset: str, written: str, **options: Any) -> DatasetSpec:
    made = dataset(asset, *NEEDS[asset], code_version=None)
    return replace(made, **{"deterministic": True, "code": CodeSpec(digest=f"1:{written}")} | options)


class Shop:
    """`b` is made of `a`, and `c` of `b`; each has code that a person edits."""

    def __init__(self, world: World, content_hash: str | None = None, built: tuple[str, ...] = tuple(NEEDS)) -> None:
        self.world = world
        self.specs = {name: spec(name, "old") for name in NEEDS}
        self._register()
        self.build(*built, content_hash=content_hash)

    def _register(self) -> None:
        datasets = tuple(self.specs.values())
        self.world.catalog.datasets = {one.asset: one for one in datasets}
        self.world.handle(c.RegisterDatasets(location=HERE, datasets=datasets))

    def edit(self, asset: str, written: str, **options: Any) -> None:
        self.specs[asset] = spec(asset, written, **options)
        self._register()

    def build(self, *refs: str, inputs: Iterable[str] | None = None, content_hash: str | None = None) -> str:
        """Build refs by the present code; the uuid of the last."""
        for ref in refs:
            self.begin(ref)
            self.end(ref, inputs, content_hash)
        return self.world.uuid(refs[-1])

    def begin(self, ref: str) -> None:
        launch_id = self.world.buffer(ref)
        made_with = MadeWith(code=self.specs[ref].code_text)
        command = c.StartLaunch(launch_id=launch_id, dagster_run_id=f"run-{launch_id}", holder="x", made_with=made_with)
        self.world.handle(command)

    def end(self, ref: str, inputs: Iterable[str] | None = None, content_hash: str | None = None) -> None:
        read = {Ref(name): self.world.uuid(name) for name in (NEEDS[ref] if inputs is None else inputs)}
        manifest = replace(COMPLETE, content_hash=content_hash)
        output = OutputFact(ref=Ref(ref), inputs=read, manifest=manifest)
        self.world.handle(c.SucceedJobRuns(runs=(RunSuccess(self.world.job_run(ref), (output,)),)))

    def fresh(self, *refs: str, rebuild: bool = False) -> str:
        return self.world.handle(
            c.CreateWants(wants=(tuple(map(Ref, refs)),), fresh=not rebuild, rebuild=rebuild)
        ).want_ids[0]

    def back(self, *refs: str, since_seq: int = 0) -> list[Ref]:
        """The refs that get an earlier instance, of those that are asked for."""
        return self.sampled(*refs, since_seq=since_seq)[0]

    def sampled(self, *refs: str, since_seq: int = 0, **sample: Any) -> tuple[list[Ref], list[TaintCreated]]:
        """The same with the taints of the refs of the sample."""
        asked = tuple(c.Returnable(Ref(ref), tuple(map(Ref, NEEDS[ref])), since_seq) for ref in refs)
        facts = [event.fact for event in self.world.handle(c.ReturnInstances(refs=asked, **sample)).events]
        back = [one.ref for fact in facts if isinstance(fact, InstancesReturned) for one in fact.returns]
        return back, [fact for fact in facts if isinstance(fact, TaintCreated)]

    def edited_and_edited_back(self, *assets: str) -> str:
        """The first instance of the first asset, after builds by other code; the code is the first again and builds are asked for."""
        first = self.world.uuid(assets[0])
        for asset in assets:
            self.edit(asset, "new")
        self.fresh(*assets)
        self.build(*assets)
        for asset in assets:
            self.edit(asset, "old")
        self.fresh(*assets)
        return first
