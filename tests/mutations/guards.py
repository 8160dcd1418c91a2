"""The guards of the package, one row each: how to take one out, and which tests must fail then.

To add a guard, add a row. `make mutations ARGS="--only NAME"` tries the rows whose name contains NAME. The simulation
finds sixteen more guards: `tests/simulation/mutations.py` is their table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guard:
    """A line of the package that enforces a rule."""

    #: What the package does without it.
    name: str
    #: Where the specification states the rule.
    section: str
    #: Path below `databuild_dagster/`.
    file: str
    #: What enforces the rule. The file contains it exactly once.
    text: str
    #: What replaces it.
    becomes: str
    #: Files or `file::test`, the cheapest that prove the rule. At least one test of them must fail.
    tests: tuple[str, ...]


# Test files move more often than rules do, so each has one name here.
ARCS = "tests/model/test_arcs.py"
ARCS_FIRE = "tests/engine/test_arcs.py"
ASIDE = "tests/engine/test_aside_reasons.py"
CHECK = "tests/store/test_check.py"
CLAIMS = "tests/model/decide/test_delegations_claims.py"
COPIES = "tests/warehouse/test_copies.py"
CYCLES = "tests/model/decide/test_cycles.py"
DELEGATIONS = "tests/model/decide/test_delegations.py"
DUE = "tests/engine/test_due.py"
EXECUTOR = "tests/engine/operations/test_executor.py"
GAPS = "tests/engine/why/test_gaps.py"
JOB_RUNS = "tests/model/decide/test_job_runs.py"
KEEPING = "tests/model/fold/test_keeping.py"
LEDGER = "tests/store/test_ledger.py"
LOOKUPS = "tests/bindings/reading/test_lookups.py"
LOST_RUN_OUTPUT = "tests/data/test_lost_run_output.py"
MANIFEST = "tests/warehouse/test_manifest.py"
MISSES = "tests/model/decide/test_misses.py"
OPERATION_END = "tests/model/operations/test_invokes.py"
OPERATION_KEYS = "tests/model/operations/test_keys.py"
PAUSES = "tests/model/decide/test_pauses.py"
OPERATIONS = "tests/engine/operations/test_manager.py"
FOLLOW_UPS = "tests/engine/operations/test_follow_ups.py"
REGISTERING = "tests/engine/test_registering.py"
SET_ASIDE = "tests/engine/test_set_aside.py"
STORE = "tests/store/test_store.py"
TAINTS = "tests/model/decide/test_taints_downstream.py"
TICK = "tests/engine/test_tick.py"
TICK_SERVING = "tests/engine/test_tick_serving.py"
TIME_ZONES = "tests/bindings/registry/test_catalog_time_zones.py"
WANTS = "tests/model/decide/test_wants.py"
WANT_TABLE = "tests/model/test_states_of_wants.py"

GUARDS = (
    Guard(
        "a waiting ref is retried when one of its missing refs is live",
        "6.6",
        "model/fold/react.py",
        "elif instance.n_unmet == 0:",
        "elif after is InstanceState.LIVE:",
        (MISSES,),
    ),
    Guard(
        "a missing ref that is tainted again is not counted again",
        "6.6",
        "model/fold/react.py",
        "instance.n_unmet += 1",
        "instance.n_unmet += 0",
        (MISSES,),
    ),
    Guard(
        "a want is upstream-failed before it is failed",
        "5.2",
        "model/states.py",
        "    if failed:\n",
        "    if failed and not upstream_failed:\n",
        (WANT_TABLE,),
    ),
    Guard(
        "skipped job runs are not in the success rate",
        "8.5",
        "store/ledger.py",
        "_GOOD = (JobRunState.SUCCEEDED, JobRunState.SKIPPED)",
        "_GOOD = (JobRunState.SUCCEEDED,)",
        (LEDGER,),
    ),
    Guard(
        "canceled and lost job runs are not in the success rate",
        "8.5",
        "store/ledger.py",
        "_ENDED = (*_GOOD, JobRunState.FAILED, JobRunState.CANCELED, JobRunState.LOST)",
        "_ENDED = (*_GOOD, JobRunState.FAILED)",
        (LEDGER,),
    ),
    Guard(
        "a claim of live refs records no skipped job run",
        "8.2",
        "model/decide/launches.py",
        "facts.append(_skipped(command, skipped, deciding if claim.build else None))",
        "pass",
        (CLAIMS,),
    ),
    Guard(
        "a Dagster run builds a ref that backs off",
        "6.8, 8.1",
        "model/coordination.py",
        "_A.JOIN if backs_off and state is _S.UP_FOR_RETRY else",
        "",
        (DELEGATIONS,),
    ),
    Guard(
        "a launch that was planned before a pause takes the lease of a paused ref",
        "6.13",
        "model/decide/launches.py",
        " and ref not in paused)",
        ")",
        (PAUSES,),
    ),
    Guard(
        "a Dagster run builds a paused ref",
        "6.13",
        "model/decide/delegations.py",
        "if ref in paused and while_paused(given, state) is not given:",
        "if False:",
        (PAUSES,),
    ),
    Guard(
        "a pause does not end by itself",
        "6.13",
        "model/pauses.py",
        "if now < pause.until}",
        "if True}",
        (PAUSES,),
    ),
    Guard(
        "a queued job run of a paused ref begins",
        "6.13",
        "model/decide/pauses.py",
        "else {JobRunState.QUEUED}",
        "else set()",
        (PAUSES,),
    ),
    Guard(
        "a command passes over a reference to a row that is not there",
        "3.5",
        "store/work/row_sets.py",
        "if absent and known is self.by_id:",
        "if False:",
        (SET_ASIDE,),
    ),
    Guard(
        "a missing row ends the tick",
        "3.5",
        "engine/set_aside.py",
        " and not isinstance(error, MissingRow):",
        ":",
        (SET_ASIDE,),
    ),
    Guard(
        "check_build_coordination builds a ref that backs off",
        "8.1",
        "bindings/reading/lookups.py",
        "backs_off = canonical.retry_at is not None and canonical.retry_at > now",
        "backs_off = False",
        (LOOKUPS,),
    ),
    Guard(
        "the message of a delegation is not the design's",
        "8.2",
        "model/coordination.py",
        '"Delegated to active build during execution"',
        '"Delegated to the build that runs"',
        (DELEGATIONS,),
    ),
    Guard(
        "a job is marked by an executor without its fence token",
        "9.5",
        "model/operations/invokes.py",
        "is_mine(id, keys, lease), job_state(lease), CAUSE_OF_MARK",
        "both(is_running(id), not_exists(keys.state)), job_state(lease), CAUSE_OF_MARK",
        (OPERATIONS,),
    ),
    Guard(
        "a follow-up runs into the operation that it follows",
        "9.6",
        "engine/operations/follow_ups.py",
        "run_ops.value) if id != after]",
        "run_ops.value)]",
        (FOLLOW_UPS,),
    ),
    Guard(
        "the intent of a started follow-up stays",
        "9.6",
        "engine/operations/follow_ups.py",
        "follow_ups=tuple(outcomes)))), Remove(entry.key)",
        "follow_ups=tuple(outcomes)))),",
        (FOLLOW_UPS,),
    ),
    Guard(
        "a lost race uses up the command id of a follow-up for good",
        "9.6",
        "engine/operations/follow_ups.py",
        ".{manager.meta.get_all([entry.key]).revision}",
        "",
        (FOLLOW_UPS,),
    ),
    Guard(
        "a job of an operation that cannot fail is marked failed",
        "9.5",
        "engine/operations/outcomes.py",
        "Rule(_B.RAISED, False, _D.RETRIED,",
        "Rule(_B.RAISED, False, _D.FAILED,",
        (OPERATIONS,),
    ),
    Guard(
        "a job that fails because Ctrl-C canceled its Spark work is marked failed",
        "9.4",
        "engine/operations/outcomes.py",
        "    if job.context.is_interrupted:\n        return Befell.INTERRUPTED\n    if job.failed",
        "    if job.failed",
        (EXECUTOR,),
    ),
    Guard(
        "a thread begins the next call after one that raised",
        "9.4",
        "warehouse/threads.py",
        "                with self._changed:\n                    self._is_closed = True\n",
        "                with self._changed:\n",
        ("tests/warehouse/test_threads.py",),
    ),
    Guard(
        "history has a move that is in no table, and `check` is silent",
        "3.2",
        "store/invariants.py",
        "NOT IN ({_LAWFUL})",
        "NOT IN ({_LAWFUL}) AND FALSE",
        (CHECK,),
    ),
    Guard(
        "an operation ends without comparing runOps with what was read",
        "9.6",
        "model/operations/invokes.py",
        "still = both(is_running(id), as_read(run_ops), *map(as_read, counters.values()))",
        "still = is_running(id)",
        (OPERATIONS,),
    ),
    Guard(
        "an operation ends without the note of a job that was taken since it was read",
        "9.6",
        "model/operations/invokes.py",
        "both(still, *executors)",
        "still",
        (OPERATIONS,),
    ),
    Guard(
        "the end of operation 1 removes the keys of operation 10",
        "9.2",
        "model/operations/invokes.py",
        "RemovePrefix(id.under)",
        "RemovePrefix(id.root)",
        (OPERATION_END,),
    ),
    Guard(
        "the keys of operation 1 begin as those of operation 10",
        "9.2",
        "model/operations/keys.py",
        "return self.root + SEPARATOR",
        "return self.root",
        (OPERATION_KEYS,),
    ),
    Guard(
        "a lot's copy under its former state stays",
        "10.2",
        "warehouse/copies.py",
        "left = sorted(present - files.keys())",
        "left: list[str] = []",
        (COPIES,),
    ),
    Guard(
        "an empty lot is reported as absent",
        "10.3",
        "engine/why/gaps.py",
        "if ref not in live]",
        "if ref not in live or ref in empty_refs]",
        (GAPS,),
    ),
    Guard(
        "an arc that failed and left data is missing",
        "10.5",
        "model/arcs.py",
        "Rule(_I.FAILED, True, _A.PARTIAL,",
        "Rule(_I.FAILED, True, _A.MISSING,",
        (ARCS,),
    ),
    Guard(
        "a job starts more launches than its concurrency allows",
        "11.1",
        "engine/planning.py",
        "if spec.concurrency is not None and self.out[spec.job] + chosen.count(spec.job) >= spec.concurrency:",
        "if False:",
        (TICK,),
    ),
    Guard(
        "a build that a waiting ref misses is canceled with its own want",
        "6.10",
        "model/fold/standing.py",
        "if ref.n_open_wants or ref.id in needed:",
        "if ref.n_open_wants:",
        (WANTS,),
    ),
    Guard(
        "a dep miss of an asset that a deploy removed fails its ref",
        "6.3",
        "model/decide/misses.py",
        "return None if deciding.view.datasets([asset_of(ref)]) else unknown.message",
        "return unknown.message",
        (MISSES,),
    ),
    Guard(
        "a dep miss of a partition that a deploy removed fails its ref",
        "6.3",
        "model/decide/misses.py",
        "return None if may_come else unknown.message",
        "return unknown.message",
        (MISSES,),
    ),
    Guard(
        "a failed input ends the builds of the others",
        "6.14",
        "model/fold/keeping.py",
        "wants = {want.id: want for want in ended if not want.fail_fast and now < want.expires_at}",
        "wants: dict[int, WantRow] = {}",
        (KEEPING,),
    ),
    Guard(
        "a fail-fast want keeps the builds of the other inputs",
        "6.14",
        "model/fold/keeping.py",
        "if not want.fail_fast and now < want.expires_at",
        "if now < want.expires_at",
        (KEEPING,),
    ),
    Guard(
        "a kept want is canceled for want of a waiter",
        "6.14",
        "model/fold/standing.py",
        "and not want.reopened and want.keeping is None and want.id not in kept",
        "and not want.reopened and want.id not in kept",
        (KEEPING,),
    ),
    Guard(
        "a kept want lives as long as the wants that failed",
        "6.14",
        "model/fold/keeping.py",
        "min(max(want.expires_at for want in wants), now + KEPT_SECONDS)",
        "max(want.expires_at for want in wants)",
        (KEEPING,),
    ),
    Guard(
        "a cancel ends what is kept for others too",
        "6.14",
        "model/decide/wants.py",
        "[want for want in kept if want.keeping not in needed]",
        "kept",
        (KEEPING,),
    ),
    Guard(
        "a kept want that fails forgets for which request",
        "6.14",
        "model/fold/keeping.py",
        "reached.append(upstream)",
        "pass",
        (KEEPING,),
    ),
    Guard(
        "a person's cancel lets a tick build the output again",
        "6.10",
        "model/decide/job_runs.py",
        "if command.fail_missed else set[int]()",
        "if False else set[int]()",
        (JOB_RUNS,),
    ),
    Guard(
        "a cycle is named by any of its shortest cycles",
        "6.7",
        "model/decide/cycles.py",
        "second = min(needed for needed in following",
        "second = max(needed for needed in following",
        (CYCLES,),
    ),
    Guard(
        "a downstream taint is removed although it acts no longer",
        "7.1",
        "model/decide/taints.py",
        "if taint.downstream and _may_be_read(list(instances.values()), deciding):",
        "if taint.downstream and instances:",
        (TAINTS,),
    ),
    Guard(
        "a ref that raises ends the tick",
        "11.5",
        "engine/set_aside.py",
        "_OF_THE_WHOLE_TICK = (StoreUnusable, NewerStore, IllegalMove)",
        "_OF_THE_WHOLE_TICK = (Exception,)",
        (SET_ASIDE,),
    ),
    Guard(
        "a partition that left its definition is launched",
        "11.5",
        "engine/set_aside.py",
        "            if absent:\n",
        "            if not absent:\n",
        (SET_ASIDE,),
    ),
    Guard(
        "two versions of the code register in turns",
        "5.7",
        "engine/orchestrator_notes.py",
        "return names[0] in noted and silence",
        "return False and silence",
        (REGISTERING,),
    ),
    Guard(
        "a version of the code that was noted by a clock that ran ahead keeps its registration for hours",
        "5.7",
        "engine/orchestrator_notes.py",
        "silence = abs(engine.clock() - noted.get(names[1], -inf))",
        "silence = engine.clock() - noted.get(names[1], -inf)",
        (REGISTERING,),
    ),
    Guard(
        "a version of the code that has ended keeps its registration",
        "5.7",
        "engine/orchestrator_notes.py",
        "names[0] in noted and silence <= _silence(last_tick(engine, location))",
        "names[0] in noted",
        (REGISTERING,),
    ),
    Guard(
        "the earlier version of the code launches what the present one builds",
        "5.7",
        "engine/registering.py",
        "if spec.asset not in self.left}",
        "}",
        (REGISTERING,),
    ),
    Guard(
        "a job run forgets the failed attempts of its refs",
        "10.2",
        "model/fold/births.py",
        "1 + max(refs[ref].attempts for ref in run.refs)",
        "1",
        (JOB_RUNS,),
    ),
    Guard(
        "an hour that Dagster lists is refused where the clock changes by half an hour",
        "10.1",
        "bindings/registry/catalog.py",
        "return found == key or (_shifts_by_half_an_hour(start) and _is_listed(partitions, key))",
        "return found == key",
        (TIME_ZONES,),
    ),
    Guard(
        "an hour has a second name where the clock changes by an hour",
        "10.1",
        "bindings/registry/catalog.py",
        "return found == key or (_shifts_by_half_an_hour(start) and _is_listed(partitions, key))",
        "return True",
        (TIME_ZONES,),
    ),
    Guard(
        "the output of other code is adopted",
        "6.9",
        "data/lost_run_output.py",
        "if code_version is None or lost.code_version != code_version:",
        "if False:",
        (LOST_RUN_OUTPUT,),
    ),
    Guard(
        "a lost job run is adopted although a rebuild was wanted",
        "6.9",
        "data/lost_run_output.py",
        "if any(want.created_at > (run.ended_at or 0.0) for want in queries.wants_of_ref(ref)):",
        "if False:",
        (LOST_RUN_OUTPUT,),
    ),
    Guard(
        "a job run is adopted that was not lost",
        "6.9",
        "data/lost_run_output.py",
        "or run.state is not JobRunState.LOST:",
        "or False:",
        (LOST_RUN_OUTPUT,),
    ),
    Guard(
        "an output of inputs that readers do not see is adopted",
        "6.9",
        "data/lost_run_output.py",
        "    return manifest if are_same else None",
        "    return manifest",
        (LOST_RUN_OUTPUT,),
    ),
    Guard(
        "an output of other inputs than the build's is adopted",
        "6.9",
        "data/lost_run_output.py",
        " or not inputs.items() <= manifest.inputs.items():",
        ":",
        (LOST_RUN_OUTPUT,),
    ),
    Guard(
        "an output without a file is adopted",
        "6.9",
        "data/lost_run_output.py",
        "and not manifest.children and not missing_files(warehouse, manifest)",
        "and not manifest.children",
        (LOST_RUN_OUTPUT,),
    ),
    Guard(
        "a prefix is read although files are lost",
        "10.2",
        "warehouse/manifest.py",
        "if sum(there[name] for name in names) != prefix.bytes:",
        "if False:",
        (MANIFEST,),
    ),
    Guard(
        "new data opens a lot that a person canceled",
        "10.5",
        "model/decide/arcs.py",
        " and job_run.state is not JobRunState.CANCELED",
        "",
        (ARCS_FIRE,),
    ),
    Guard(
        "an arc forgets a lot that had failed upstream",
        "10.5",
        "model/fold/standing.py",
        "        *_lots_opened(view, missing, now, new_id),\n",
        "",
        (ARCS_FIRE,),
    ),
    Guard(
        "a lot that failed upstream is wanted again without new data",
        "10.5",
        "model/fold/standing.py",
        "        and want.ended_at == want.created_at\n",
        "",
        (ARCS_FIRE,),
    ),
    Guard(
        "an arc that comes back passes over what became live meanwhile",
        "10.5",
        "model/fold/datasets.py",
        "arc.seq = arc.seq if asset in fact.resumed else folding.seq",
        "arc.seq = folding.seq",
        (ARCS_FIRE,),
    ),
    Guard(
        "an arc that was removed long ago keeps its place",
        "10.5",
        "model/decide/datasets.py",
        "if arc.removed and (arc.removed_at or 0.0) >= earliest",
        "if arc.removed",
        (ARCS_FIRE,),
    ),
    Guard(
        "a process passes over the place of an arc that came back",
        "10.5",
        "engine/arcs.py",
        "if (arc.asset, arc.since) in kept.followed else arc.seq for",
        "for",
        (ARCS_FIRE,),
    ),
    Guard(
        "an arc that came back is moved by a process that has not followed it",
        "10.5",
        "model/decide/arcs.py",
        "command.followed.get(arc.asset) == arc.since",
        "arc.asset in command.followed",
        (ARCS_FIRE,),
    ),
    Guard(
        "an arc that raised loses its place in the log",
        "11.5",
        "engine/arcs.py",
        "for arc in arcs if arc_name(arc.asset) not in aside}",
        "for arc in arcs}",
        (SET_ASIDE,),
    ),
    Guard(
        "each tick records the same reason again",
        "11.7",
        "model/set_aside.py",
        'return _UNSTEADY.sub("#", one) == _UNSTEADY.sub("#", other)',
        "return False",
        (ASIDE,),
    ),
    Guard(
        "a look that is not whole ends the reasons that it did not see",
        "11.7",
        "engine/aside_reasons.py",
        "if name not in found] if is_whole else []",
        "if name not in found]",
        (ASIDE,),
    ),
    Guard(
        "a tick ends the reasons of landing folders",
        "11.7",
        "engine/aside_reasons.py",
        "return asset_of(Ref(before.name)) not in self._boundaries",
        "return True",
        (ASIDE,),
    ),
    Guard(
        "a ref rests for hours because a clock ran ahead",
        "11.7",
        "engine/aside_reasons.py",
        "and now < tries.again_at <= now + MAX_PAUSE_SECONDS",
        "and now < tries.again_at",
        (ASIDE,),
    ),
    Guard(
        "a ref that raises is tried by each tick",
        "11.7",
        "engine/aside_reasons.py",
        "doublings = n_tries - TRIES_WITHOUT_PAUSE - 1",
        "doublings = -1",
        (ASIDE,),
    ),
    Guard(
        "a ref that a tick did not look at counts as planned again",
        "11.7",
        "engine/aside_reasons.py",
        "return before.name not in due",
        "return True",
        (ASIDE,),
    ),
    Guard(
        "one asset's due refs fill the look of a tick",
        "11.6",
        "store/queries/planning.py",
        "(? + n - 1) / n AS size",
        "? + n - n AS size",
        (DUE,),
    ),
    Guard(
        "a part of an asset in which nothing can be launched is looked at for good",
        "11.6",
        "engine/planning.py",
        "looks.pass_over(look, {",
        "looks.pass_over(look, datasets or {",
        (DUE,),
    ),
    Guard(
        "the same wanted refs of a source are observed each time",
        "11.6",
        "engine/observing.py",
        "    looks.pass_over(look)\n",
        "",
        ("tests/engine/test_observing.py",),
    ),
    Guard(
        "a build launches due refs that it does not need",
        "8.9",
        "engine/planning.py",
        'Looks(engine, "planning", this.serving)',
        'Looks(engine, "planning")',
        (TICK_SERVING,),
    ),
    Guard(
        "a build does not build the other outputs of its job runs",
        "8.9",
        "engine/planning.py",
        "    if not siblings:\n",
        "    if True:\n",
        (TICK_SERVING,),
    ),
    Guard(
        "a build launches the abandoned launch of another build as a whole",
        "8.9",
        "engine/tick.py",
        "(None if all(are_served) else SERVED_IN_PART)",
        "None",
        (TICK_SERVING,),
    ),
    Guard(
        "a build waits without end for an input that the last call named",
        "8.9",
        "store/queries/served.py",
        "CASE WHEN r.due = 1 THEN r.learned_id ELSE r.canonical_id END",
        "r.canonical_id",
        (TICK_SERVING,),
    ),
    Guard(
        "a process of an older version writes into a store that a newer one has migrated",
        "3.4",
        "store/store.py",
        "            self._check_versions(self._read_versions(*versions))\n",
        "            pass\n",
        (STORE,),
    ),
    Guard(
        "a store is migrated while a process of an older version works on it",
        "3.4",
        "engine/migrating.py",
        "    if not force and store.versions() != store.known_versions and",
        "    if False and",
        ("tests/engine/test_migrating.py",),
    ),
)
