CREATE TABLE fastjobs_jobs (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	kind VARCHAR(100) NOT NULL,
	state SMALLINT DEFAULT 0 NOT NULL,
	priority INTEGER DEFAULT 0 NOT NULL,
	run_at BIGINT NOT NULL,
	held_until BIGINT DEFAULT 0 NOT NULL,
	attempts INTEGER DEFAULT 0 NOT NULL,
	claim BIGINT DEFAULT 0 NOT NULL,
	lost INTEGER DEFAULT 0 NOT NULL,
	own_key BLOB,
	unique_key BLOB,
	alone_key BLOB,
	name VARCHAR(255),
	keep_name BIGINT,
	first_push_at BIGINT,
	stop_asked SMALLINT DEFAULT 0 NOT NULL,
	progress TEXT,
	created_at BIGINT DEFAULT 0 NOT NULL,
	failed_at BIGINT,
	payload TEXT NOT NULL,
	carried TEXT,
	error TEXT
);

CREATE INDEX fastjobs_jobs_busy ON fastjobs_jobs (kind, alone_key, held_until) WHERE state = 1 AND alone_key IS NOT NULL;

CREATE INDEX fastjobs_jobs_failed ON fastjobs_jobs (failed_at) WHERE state = 3;

CREATE INDEX fastjobs_jobs_failed_kind ON fastjobs_jobs (kind, failed_at) WHERE state = 3;

CREATE INDEX fastjobs_jobs_held ON fastjobs_jobs (kind, held_until) WHERE state = 1;

CREATE UNIQUE INDEX fastjobs_jobs_name ON fastjobs_jobs (name) WHERE name IS NOT NULL;

CREATE INDEX fastjobs_jobs_parked ON fastjobs_jobs (kind, alone_key, run_at) WHERE state = 2;

CREATE INDEX fastjobs_jobs_ready ON fastjobs_jobs (kind, run_at) WHERE state = 0;

CREATE UNIQUE INDEX fastjobs_jobs_unique ON fastjobs_jobs (kind, unique_key) WHERE unique_key IS NOT NULL;

CREATE TABLE fastjobs_kinds (
	kind VARCHAR(100) NOT NULL,
	held_until BIGINT DEFAULT 0 NOT NULL,
	paused SMALLINT DEFAULT 0 NOT NULL,
	first_seen BIGINT DEFAULT 0 NOT NULL,
	CONSTRAINT fastjobs_kinds_pk PRIMARY KEY (kind)
)
 WITHOUT ROWID;

CREATE TABLE fastjobs_names (
	name VARCHAR(255) NOT NULL,
	until BIGINT NOT NULL,
	CONSTRAINT fastjobs_names_pk PRIMARY KEY (name)
)
 WITHOUT ROWID;

CREATE INDEX fastjobs_names_until ON fastjobs_names (until);

CREATE TABLE fastjobs_schedules (
	name VARCHAR(255) NOT NULL,
	run_at BIGINT NOT NULL,
	CONSTRAINT fastjobs_schedules_pk PRIMARY KEY (name)
)
 WITHOUT ROWID;

CREATE TABLE fastjobs_schema (
	id SMALLINT NOT NULL,
	version INTEGER NOT NULL,
	CONSTRAINT fastjobs_schema_pk PRIMARY KEY (id)
);

CREATE TABLE fastjobs_slots (
	kind VARCHAR(100) NOT NULL,
	alone_key BLOB NOT NULL,
	job_id BIGINT NOT NULL,
	claim BIGINT NOT NULL,
	held_until BIGINT NOT NULL,
	CONSTRAINT fastjobs_slots_pk PRIMARY KEY (kind, alone_key)
)
 WITHOUT ROWID;

CREATE TABLE fastjobs_throttles (
	name VARCHAR(100) NOT NULL,
	"key" VARCHAR(255) NOT NULL,
	slot INTEGER NOT NULL,
	at BIGINT NOT NULL,
	free_at BIGINT NOT NULL,
	CONSTRAINT fastjobs_throttles_pk PRIMARY KEY (name, "key", slot)
)
 WITHOUT ROWID;

CREATE INDEX fastjobs_throttles_free ON fastjobs_throttles (free_at);

INSERT INTO fastjobs_schema (id, version) VALUES (1, 1);

-- push
INSERT INTO "fastjobs_jobs" (kind, payload, run_at, created_at, carried) VALUES (?, ?, ?, ?, ?);

-- new_kind
INSERT INTO "fastjobs_kinds" (kind, first_seen) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- known_kinds
SELECT kind FROM "fastjobs_kinds";

-- look
SELECT k.value, s.held_until, s.paused, (SELECT j.run_at FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_ready" WHERE j.kind = k.value AND j.state = 0 ORDER BY j.run_at LIMIT 1), (SELECT j.held_until FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_held" WHERE j.kind = k.value AND j.state = 1 ORDER BY j.held_until LIMIT 1) FROM json_each(?) AS k LEFT JOIN "fastjobs_kinds" AS s ON s.kind = k.value;

-- look_all
SELECT k.value, s.held_until, s.paused, (SELECT j.run_at FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_ready" WHERE j.kind = k.value AND j.state = 0 ORDER BY j.run_at LIMIT 1), (SELECT j.held_until FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_held" WHERE j.kind = k.value AND j.state = 1 ORDER BY j.held_until LIMIT 1) FROM (SELECT value FROM json_each(?) UNION SELECT kind FROM "fastjobs_kinds") AS k LEFT JOIN "fastjobs_kinds" AS s ON s.kind = k.value;

-- news
SELECT k.kind, CASE WHEN k.paused = 0 THEN (SELECT j.run_at FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_ready" WHERE j.kind = k.kind AND j.state = 0 ORDER BY j.run_at LIMIT 1) END, (SELECT seq FROM sqlite_sequence WHERE name = 'fastjobs_jobs') FROM "fastjobs_kinds" AS k;

-- reap
UPDATE "fastjobs_jobs" INDEXED BY "fastjobs_jobs_held" SET state = 0, held_until = 0, lost = lost + 1 WHERE kind = ? AND state = 1 AND held_until <= ?;

-- heads
SELECT id, kind, payload, run_at, attempts, claim, lost, error, carried, stop_asked, alone_key FROM "fastjobs_jobs" INDEXED BY "fastjobs_jobs_ready" WHERE kind = ? AND state = 0 AND run_at <= ? AND (lost <= ? OR attempts >= ?) ORDER BY run_at, id;

-- take
UPDATE "fastjobs_jobs" SET state = 1, held_until = ?, attempts = attempts + 1, claim = claim + 1, unique_key = NULL WHERE id IN (SELECT value FROM json_each(?));

-- exhaust
UPDATE "fastjobs_jobs" SET state = 3, held_until = 0, claim = claim + 1, unique_key = NULL, failed_at = ?, error = ? WHERE id = ?;

-- done
DELETE FROM "fastjobs_jobs" WHERE id = ? AND claim = ? AND state <> 3 AND alone_key IS NULL AND name IS NULL;

-- try_again
UPDATE "fastjobs_jobs" SET state = 0, held_until = 0, claim = claim + 1, run_at = iif(stop_asked, run_at, ?), error = ? WHERE id = ? AND claim = ? AND state <> 3 AND alone_key IS NULL;

-- fail
UPDATE "fastjobs_jobs" SET state = 3, held_until = 0, claim = claim + 1, unique_key = NULL, failed_at = ?, error = ? WHERE id = ? AND claim = ? AND state <> 3 AND alone_key IS NULL;

-- give_back
UPDATE "fastjobs_jobs" SET state = 0, held_until = 0, claim = claim + 1, attempts = max(attempts - 1, 0), run_at = iif(stop_asked, run_at, coalesce(?, run_at)), error = coalesce(?, error) WHERE id = ? AND claim = ? AND state <> 3 AND own_key IS NULL;

-- extend
UPDATE "fastjobs_jobs" SET held_until = ? WHERE id = ? AND claim = ? AND state = 1 AND held_until > ? RETURNING stop_asked;

-- runs
SELECT name, run_at FROM "fastjobs_schedules" WHERE name IN (SELECT value FROM json_each(?));

-- note_run
INSERT INTO "fastjobs_schedules" (name, run_at) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET run_at = excluded.run_at;

-- looks.counts
SELECT k.kind, (SELECT count(*) FROM (SELECT 1 FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_ready" WHERE j.kind = k.kind AND j.state = 0 LIMIT :most) AS few), (SELECT count(*) FROM (SELECT 1 FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_ready" WHERE j.kind = k.kind AND j.state = 0 AND j.run_at <= :now LIMIT :most) AS few), (SELECT count(*) FROM (SELECT 1 FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_held" WHERE j.kind = k.kind AND j.state = 1 LIMIT :most) AS few), (SELECT count(*) FROM (SELECT 1 FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_parked" WHERE j.kind = k.kind AND j.state = 2 LIMIT :most) AS few), (SELECT count(*) FROM (SELECT 1 FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_failed_kind" WHERE j.kind >= k.kind AND j.kind <= k.kind AND j.state = 3 ORDER BY j.kind, j.failed_at, j.id LIMIT :most) AS few), (SELECT j.run_at FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_ready" WHERE j.kind = k.kind AND j.state = 0 ORDER BY j.run_at, j.id LIMIT 1), k.held_until, k.paused FROM "fastjobs_kinds" AS k ORDER BY k.kind;

-- looks.job
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), length(CAST(j.payload AS BLOB)), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, CASE WHEN j.state = 2 THEN (SELECT h.id FROM "fastjobs_jobs" AS h INDEXED BY "fastjobs_jobs_busy" WHERE h.kind = j.kind AND h.alone_key = j.alone_key AND h.state = 1 AND h.held_until > :now LIMIT 1) END, (SELECT k.held_until FROM "fastjobs_kinds" AS k WHERE k.kind = j.kind), (SELECT k.paused FROM "fastjobs_kinds" AS k WHERE k.kind = j.kind), (SELECT count(*) FROM (SELECT 1 FROM "fastjobs_jobs" AS h INDEXED BY "fastjobs_jobs_held" WHERE h.kind = j.kind AND h.state = 1 AND h.held_until > :now LIMIT 1001) AS few) FROM "fastjobs_jobs" AS j WHERE j.id = :id;

-- looks.waiting
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), length(CAST(j.payload AS BLOB)), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM "fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT k.paused FROM "fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM "fastjobs_jobs" AS h INDEXED BY "fastjobs_jobs_held" WHERE h.kind = :kind AND h.state = 1 AND h.held_until > :now LIMIT 1001) AS few) FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_ready" WHERE j.kind = :kind AND j.state = 0 ORDER BY j.run_at, j.id LIMIT :most;

-- looks.waiting
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), length(CAST(j.payload AS BLOB)), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM "fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT k.paused FROM "fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM "fastjobs_jobs" AS h INDEXED BY "fastjobs_jobs_held" WHERE h.kind = :kind AND h.state = 1 AND h.held_until > :now LIMIT 1001) AS few) FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_ready" WHERE j.kind = :kind AND j.state = 0 AND j.run_at = :at AND j.id > :last ORDER BY j.run_at, j.id LIMIT :most;

-- looks.waiting
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), length(CAST(j.payload AS BLOB)), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM "fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT k.paused FROM "fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM "fastjobs_jobs" AS h INDEXED BY "fastjobs_jobs_held" WHERE h.kind = :kind AND h.state = 1 AND h.held_until > :now LIMIT 1001) AS few) FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_ready" WHERE j.kind = :kind AND j.state = 0 AND j.run_at > :at ORDER BY j.run_at, j.id LIMIT :most;

-- looks.held
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), length(CAST(j.payload AS BLOB)), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM "fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT k.paused FROM "fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM "fastjobs_jobs" AS h INDEXED BY "fastjobs_jobs_held" WHERE h.kind = :kind AND h.state = 1 AND h.held_until > :now LIMIT 1001) AS few) FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_held" WHERE j.kind = :kind AND j.state = 1 ORDER BY j.held_until, j.id LIMIT :most;

-- looks.held
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), length(CAST(j.payload AS BLOB)), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM "fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT k.paused FROM "fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM "fastjobs_jobs" AS h INDEXED BY "fastjobs_jobs_held" WHERE h.kind = :kind AND h.state = 1 AND h.held_until > :now LIMIT 1001) AS few) FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_held" WHERE j.kind = :kind AND j.state = 1 AND j.held_until = :at AND j.id > :last ORDER BY j.held_until, j.id LIMIT :most;

-- looks.held
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), length(CAST(j.payload AS BLOB)), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM "fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT k.paused FROM "fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM "fastjobs_jobs" AS h INDEXED BY "fastjobs_jobs_held" WHERE h.kind = :kind AND h.state = 1 AND h.held_until > :now LIMIT 1001) AS few) FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_held" WHERE j.kind = :kind AND j.state = 1 AND j.held_until > :at ORDER BY j.held_until, j.id LIMIT :most;

-- looks.failed
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, length(CAST(j.payload AS BLOB)), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_failed" WHERE j.state = 3 ORDER BY j.failed_at DESC, j.id DESC LIMIT :most;

-- looks.failed
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, length(CAST(j.payload AS BLOB)), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_failed" WHERE j.state = 3 AND j.failed_at = :at AND j.id < :last ORDER BY j.failed_at DESC, j.id DESC LIMIT :most;

-- looks.failed
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, length(CAST(j.payload AS BLOB)), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_failed" WHERE j.state = 3 AND j.failed_at < :at ORDER BY j.failed_at DESC, j.id DESC LIMIT :most;

-- looks.failed_kind
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, length(CAST(j.payload AS BLOB)), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_failed_kind" WHERE j.state = 3 AND j.kind = :kind ORDER BY j.failed_at DESC, j.id DESC LIMIT :most;

-- looks.failed_kind
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, length(CAST(j.payload AS BLOB)), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_failed_kind" WHERE j.state = 3 AND j.kind = :kind AND j.failed_at = :at AND j.id < :last ORDER BY j.failed_at DESC, j.id DESC LIMIT :most;

-- looks.failed_kind
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, length(CAST(j.payload AS BLOB)), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM "fastjobs_jobs" AS j INDEXED BY "fastjobs_jobs_failed_kind" WHERE j.state = 3 AND j.kind = :kind AND j.failed_at < :at ORDER BY j.failed_at DESC, j.id DESC LIMIT :most;
