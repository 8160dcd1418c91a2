CREATE TABLE databuild_meta (
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE databuild_events (
	seq INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	type TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	command_id TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	payload TEXT NOT NULL, 
	PRIMARY KEY (seq), 
	UNIQUE (command_id)
);
CREATE TRIGGER databuild_events_no_update BEFORE UPDATE ON databuild_events BEGIN SELECT RAISE(ABORT, 'the event log is append-only'); END;
CREATE TRIGGER databuild_events_no_delete BEFORE DELETE ON databuild_events BEGIN SELECT RAISE(ABORT, 'the event log is append-only'); END;
CREATE TRIGGER databuild_events_only_next BEFORE INSERT ON databuild_events WHEN NEW.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM databuild_events) OR EXISTS (SELECT 1 FROM databuild_events WHERE command_id = NEW.command_id) BEGIN SELECT RAISE(ABORT, 'the event log is append-only: a new event takes the next seq and a command id of its own'); END;
CREATE TABLE databuild_datasets (
	id INTEGER NOT NULL, 
	asset TEXT NOT NULL, 
	location TEXT NOT NULL, 
	job TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	removed INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (asset)
);
CREATE TABLE databuild_refs (
	id INTEGER NOT NULL, 
	ref TEXT NOT NULL, 
	dataset_id INTEGER NOT NULL, 
	canonical_id INTEGER, 
	last_id INTEGER, 
	state TEXT, 
	retry_at FLOAT, 
	n_open_wants INTEGER NOT NULL, 
	priority INTEGER NOT NULL, 
	deadline FLOAT NOT NULL, 
	wanted_since FLOAT NOT NULL, 
	wanted_until FLOAT NOT NULL, 
	misses INTEGER NOT NULL, 
	attempts INTEGER NOT NULL, 
	outages INTEGER NOT NULL, 
	losses INTEGER NOT NULL, 
	cause TEXT, 
	origin TEXT, 
	learned_id INTEGER, 
	n_waiters INTEGER NOT NULL, 
	n_joined INTEGER NOT NULL, 
	fail_fast INTEGER NOT NULL, 
	due INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	CHECK (state = 'Building' OR state = 'UpstreamBuilding' OR state = 'UpForRetry' OR state = 'Live' OR state = 'Failed' OR state = 'UpstreamFailed' OR state = 'Tainted'), 
	UNIQUE (ref)
);
CREATE INDEX databuild_refs_failed ON databuild_refs (state, due, dataset_id, cause, canonical_id) WHERE cause IS NOT NULL;
CREATE INDEX databuild_refs_at_hand ON databuild_refs (due, dataset_id, priority DESC, deadline, wanted_since, ref) WHERE due = 1 OR state = 'Building';
CREATE INDEX databuild_refs_tainted ON databuild_refs (dataset_id) WHERE state = 'Tainted';
CREATE TABLE databuild_instances (
	id INTEGER NOT NULL, 
	uuid TEXT NOT NULL, 
	ref_id INTEGER NOT NULL, 
	job_run_id INTEGER NOT NULL, 
	previous_id INTEGER, 
	created_seq INTEGER NOT NULL, 
	created_at FLOAT NOT NULL, 
	state TEXT NOT NULL, 
	retry_at FLOAT, 
	n_unmet INTEGER NOT NULL, 
	n_taints INTEGER NOT NULL, 
	n_spreading INTEGER NOT NULL, 
	was_live INTEGER NOT NULL, 
	live_at FLOAT, 
	reason TEXT, 
	code_version TEXT, 
	manifest_state TEXT, 
	manifest_uri TEXT, 
	n_files INTEGER, 
	n_rows INTEGER, 
	n_bytes INTEGER, 
	content_hash TEXT, 
	origin TEXT, 
	cleared_at FLOAT, 
	same_as_id INTEGER, 
	numbers TEXT, 
	PRIMARY KEY (id), 
	CHECK (state = 'Building' OR state = 'UpstreamBuilding' OR state = 'UpForRetry' OR state = 'Live' OR state = 'Failed' OR state = 'UpstreamFailed' OR state = 'Tainted'), 
	UNIQUE (uuid)
);
CREATE INDEX databuild_instances_unfinished ON databuild_instances (id) WHERE manifest_state = 'removed' AND cleared_at IS NULL;
CREATE INDEX databuild_instances_same_as ON databuild_instances (same_as_id) WHERE same_as_id IS NOT NULL;
CREATE TABLE databuild_job_runs (
	id INTEGER NOT NULL, 
	job_run_id TEXT NOT NULL, 
	launch_id INTEGER NOT NULL, 
	partition_key TEXT, 
	refs TEXT NOT NULL, 
	buffered_at FLOAT NOT NULL, 
	state TEXT NOT NULL, 
	started_at FLOAT, 
	ended_at FLOAT, 
	error TEXT, 
	code TEXT, 
	PRIMARY KEY (id), 
	CHECK (state = 'Queued' OR state = 'Running' OR state = 'Succeeded' OR state = 'DepMissed' OR state = 'Failed' OR state = 'Canceled' OR state = 'Lost' OR state = 'Skipped'), 
	UNIQUE (job_run_id)
);
CREATE TABLE databuild_launches (
	id INTEGER NOT NULL, 
	launch_id TEXT NOT NULL, 
	job TEXT NOT NULL, 
	location TEXT NOT NULL, 
	owner TEXT NOT NULL, 
	code_version TEXT, 
	buffered_at FLOAT NOT NULL, 
	dagster_run_id TEXT, 
	holder TEXT, 
	started_at FLOAT, 
	PRIMARY KEY (id), 
	UNIQUE (launch_id)
);
CREATE INDEX databuild_launches_claimed ON databuild_launches (dagster_run_id) WHERE owner = dagster_run_id;
CREATE TABLE databuild_wants (
	id INTEGER NOT NULL, 
	want_id TEXT NOT NULL, 
	request_id TEXT NOT NULL, 
	source TEXT NOT NULL, 
	source_id TEXT, 
	comment TEXT NOT NULL, 
	priority INTEGER NOT NULL, 
	created_at FLOAT NOT NULL, 
	data_timestamp FLOAT, 
	expires_at FLOAT NOT NULL, 
	deadline FLOAT NOT NULL, 
	n_refs INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	ended_at FLOAT, 
	n_live INTEGER NOT NULL, 
	n_failed INTEGER NOT NULL, 
	n_upstream_failed INTEGER NOT NULL, 
	n_building INTEGER NOT NULL, 
	n_upstream_building INTEGER NOT NULL, 
	sla_at FLOAT, 
	sla_missed_at FLOAT, 
	reopened INTEGER NOT NULL, 
	fail_fast INTEGER NOT NULL, 
	keeping INTEGER, 
	withdrawn INTEGER NOT NULL, 
	PRIMARY KEY (id), 
	CHECK (state = 'New' OR state = 'Idle' OR state = 'Building' OR state = 'UpstreamBuilding' OR state = 'Successful' OR state = 'Failed' OR state = 'UpstreamFailed' OR state = 'Canceled' OR state = 'Expired'), 
	UNIQUE (want_id)
);
CREATE INDEX databuild_wants_expiring ON databuild_wants (expires_at) WHERE ended_at IS NULL;
CREATE INDEX databuild_wants_sla ON databuild_wants (sla_at) WHERE sla_at IS NOT NULL;
CREATE INDEX databuild_wants_kept ON databuild_wants (keeping) WHERE keeping IS NOT NULL;
CREATE INDEX ix_databuild_wants_request_id ON databuild_wants (request_id);
CREATE TABLE databuild_want_refs (
	want_id INTEGER NOT NULL, 
	ref_id INTEGER NOT NULL, 
	PRIMARY KEY (want_id, ref_id)
)
 WITHOUT ROWID;
CREATE TABLE databuild_holds (
	ref_id INTEGER NOT NULL, 
	open INTEGER NOT NULL, 
	want_id INTEGER NOT NULL, 
	PRIMARY KEY (ref_id, open, want_id)
)
 WITHOUT ROWID;
CREATE TABLE databuild_kept_for (
	keeping INTEGER NOT NULL, 
	want_id INTEGER NOT NULL, 
	PRIMARY KEY (keeping, want_id)
)
 WITHOUT ROWID;
CREATE INDEX databuild_kept_for_want ON databuild_kept_for (want_id);
CREATE TABLE databuild_missing (
	instance_id INTEGER NOT NULL, 
	ref_id INTEGER NOT NULL, 
	active INTEGER NOT NULL, 
	PRIMARY KEY (instance_id, ref_id)
)
 WITHOUT ROWID;
CREATE INDEX databuild_missing_active ON databuild_missing (ref_id) WHERE active = 1;
CREATE TABLE databuild_instance_inputs (
	instance_id INTEGER NOT NULL, 
	ref_id INTEGER NOT NULL, 
	input_id INTEGER NOT NULL, 
	PRIMARY KEY (instance_id, ref_id)
)
 WITHOUT ROWID;
CREATE INDEX databuild_instance_inputs_of_input ON databuild_instance_inputs (input_id);
CREATE TABLE databuild_taints (
	id INTEGER NOT NULL, 
	taint_id TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	created_at FLOAT NOT NULL, 
	downstream INTEGER NOT NULL, 
	of_code INTEGER NOT NULL, 
	canceled_at FLOAT, 
	PRIMARY KEY (id), 
	UNIQUE (taint_id)
);
CREATE TABLE databuild_taint_instances (
	taint_id INTEGER NOT NULL, 
	instance_id INTEGER NOT NULL, 
	canceled_at FLOAT, 
	PRIMARY KEY (taint_id, instance_id)
)
 WITHOUT ROWID;
CREATE INDEX databuild_taint_instances_of_instance ON databuild_taint_instances (instance_id);
CREATE TABLE databuild_reverts (
	ref_id INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	instance_id INTEGER NOT NULL, 
	returned INTEGER NOT NULL, 
	PRIMARY KEY (ref_id, seq)
)
 WITHOUT ROWID;
CREATE TABLE databuild_pauses (
	ref TEXT NOT NULL, 
	seq INTEGER NOT NULL, 
	dataset_id INTEGER NOT NULL, 
	is_whole INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	actor TEXT NOT NULL, 
	paused_at FLOAT NOT NULL, 
	until FLOAT NOT NULL, 
	ended_seq INTEGER, 
	ended_at FLOAT, 
	PRIMARY KEY (ref, seq)
)
 WITHOUT ROWID;
CREATE INDEX databuild_pauses_open ON databuild_pauses (dataset_id) WHERE ended_seq IS NULL;
CREATE TABLE databuild_arcs (
	id INTEGER NOT NULL, 
	asset TEXT NOT NULL, 
	seq INTEGER NOT NULL, 
	removed INTEGER NOT NULL, 
	since INTEGER NOT NULL, 
	removed_at FLOAT, 
	PRIMARY KEY (id), 
	UNIQUE (asset)
);
CREATE TABLE databuild_set_aside (
	id INTEGER NOT NULL, 
	subject TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	name TEXT NOT NULL, 
	location TEXT NOT NULL, 
	reason TEXT, 
	since FLOAT NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (subject)
);
CREATE INDEX databuild_set_aside_now ON databuild_set_aside (name) WHERE reason IS NOT NULL;
CREATE TABLE databuild_arc_firings (
	arc_id INTEGER NOT NULL, 
	instance_id INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	PRIMARY KEY (arc_id, instance_id, seq)
)
 WITHOUT ROWID;
CREATE INDEX databuild_arc_firings_newest ON databuild_arc_firings (arc_id, seq);
CREATE TABLE databuild_delegations (
	requester TEXT NOT NULL, 
	ref_id INTEGER NOT NULL, 
	kind TEXT NOT NULL, 
	outcome TEXT NOT NULL, 
	asked_at FLOAT NOT NULL, 
	job_run_id INTEGER NOT NULL, 
	instance_id INTEGER NOT NULL, 
	reason TEXT NOT NULL, 
	ended_at FLOAT, 
	served_id INTEGER, 
	PRIMARY KEY (requester, ref_id), 
	CHECK (kind = 'built' OR kind = 'joined' OR kind = 'reused' OR kind = 'refused'), 
	CHECK (outcome = 'waiting' OR outcome = 'live' OR outcome = 'failed' OR outcome = 'refused' OR outcome = 'given up')
)
 WITHOUT ROWID;
CREATE INDEX databuild_delegations_of_ref ON databuild_delegations (ref_id, outcome);
CREATE INDEX databuild_delegations_asked ON databuild_delegations (asked_at);
CREATE TABLE databuild_history (
	kind TEXT NOT NULL, 
	entity_id INTEGER NOT NULL, 
	seq INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	from_state TEXT, 
	to_state TEXT NOT NULL, 
	PRIMARY KEY (entity_id, kind, seq, place)
)
 WITHOUT ROWID;
CREATE TABLE databuild_meta_entries (
	"key" TEXT NOT NULL, 
	revision INTEGER NOT NULL, 
	value TEXT, 
	PRIMARY KEY ("key")
)
 WITHOUT ROWID;
CREATE TABLE databuild_meta_changes (
	revision INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT, 
	PRIMARY KEY (revision, "key")
)
 WITHOUT ROWID;
CREATE TABLE databuild_meta_compactions (
	seq INTEGER NOT NULL, 
	revision INTEGER NOT NULL, 
	PRIMARY KEY (seq)
);
CREATE VIEW databuild_available_partitions AS 
        SELECT r.ref AS partition_ref, coalesce(l.dagster_run_id, l.launch_id) AS build_request_id,
               j.job_run_id AS job_run_id, i.uuid AS uuid, i.live_at AS live_at
        FROM databuild_refs r JOIN databuild_instances i ON i.id = r.canonical_id
        JOIN databuild_job_runs j ON j.id = i.job_run_id JOIN databuild_launches l ON l.id = j.launch_id
        WHERE r.state = 'Live';
CREATE VIEW databuild_active_builds AS 
        SELECT r.ref AS partition_ref, coalesce(l.dagster_run_id, l.launch_id) AS build_request_id,
               j.job_run_id AS job_run_id, i.uuid AS uuid, r.state AS state
        FROM databuild_refs r JOIN databuild_instances i ON i.id = r.canonical_id
        JOIN databuild_job_runs j ON j.id = i.job_run_id JOIN databuild_launches l ON l.id = j.launch_id
        WHERE r.state = 'Building' OR r.state = 'UpstreamBuilding';
CREATE VIEW databuild_runs_of_jobs AS 
        SELECT j.job_run_id AS job_run_id, l.job AS job_label, j.partition_key AS partition_key, j.state AS state,
               coalesce(l.dagster_run_id, l.launch_id) AS build_request_id,
               j.buffered_at AS buffered_at, j.started_at AS started_at, j.ended_at AS ended_at,
               CASE j.state WHEN 'Skipped' THEN 'Job skipped - all target partitions already available' ELSE j.error END AS message
        FROM databuild_job_runs j JOIN databuild_launches l ON l.id = j.launch_id;
CREATE VIEW databuild_delegated_partitions AS 
        SELECT r.ref AS partition_ref, d.requester AS requester, d.kind AS kind,
               CASE d.kind WHEN 'joined' THEN 'Delegated to active build during execution' WHEN 'reused' THEN 'Delegated to historical build - partition already available' WHEN 'refused' THEN 'Refused - its build has failed, taint it to have it built again' END AS message, d.outcome AS outcome, d.reason AS reason,
               coalesce(l.dagster_run_id, l.launch_id) AS delegated_to, j.job_run_id AS job_run_id, i.uuid AS uuid,
               d.asked_at AS asked_at, d.ended_at AS ended_at
        FROM databuild_delegations d JOIN databuild_refs r ON r.id = d.ref_id
        JOIN databuild_instances i ON i.id = CASE d.outcome WHEN 'waiting' THEN r.canonical_id
    WHEN 'refused' THEN d.instance_id ELSE coalesce(d.served_id, d.instance_id) END
        JOIN databuild_job_runs j ON j.id = i.job_run_id JOIN databuild_launches l ON l.id = j.launch_id
        WHERE d.kind <> 'built';
