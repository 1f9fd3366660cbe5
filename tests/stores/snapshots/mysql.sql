CREATE TABLE fastjobs_jobs (
	id BIGINT NOT NULL AUTO_INCREMENT,
	kind VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	state SMALLINT NOT NULL DEFAULT 0,
	priority INTEGER NOT NULL DEFAULT 0,
	run_at BIGINT NOT NULL,
	held_until BIGINT NOT NULL DEFAULT 0,
	attempts INTEGER NOT NULL DEFAULT 0,
	claim BIGINT NOT NULL DEFAULT 0,
	lost INTEGER NOT NULL DEFAULT 0,
	own_key VARBINARY(32),
	unique_key VARBINARY(32),
	alone_key VARBINARY(32),
	name VARBINARY(1020),
	keep_name BIGINT,
	first_push_at BIGINT,
	stop_asked SMALLINT NOT NULL DEFAULT 0,
	progress LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
	created_at BIGINT NOT NULL DEFAULT 0,
	failed_at BIGINT,
	payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
	carried LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
	error LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
	due BIGINT GENERATED ALWAYS AS (CASE state WHEN 1 THEN held_until WHEN 3 THEN failed_at ELSE run_at END) STORED,
	parked_key VARBINARY(32) GENERATED ALWAYS AS (CASE state WHEN 2 THEN alone_key END) STORED,
	PRIMARY KEY (id)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COLLATE utf8mb4_bin;

CREATE INDEX fastjobs_jobs_due ON fastjobs_jobs (kind, state, due, id);

CREATE UNIQUE INDEX fastjobs_jobs_name ON fastjobs_jobs (name);

CREATE INDEX fastjobs_jobs_parked ON fastjobs_jobs (kind, parked_key, run_at, id);

CREATE UNIQUE INDEX fastjobs_jobs_unique ON fastjobs_jobs (kind, unique_key);

CREATE TABLE fastjobs_kinds (
	kind VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	held_until BIGINT NOT NULL DEFAULT 0,
	paused SMALLINT NOT NULL DEFAULT 0,
	first_seen BIGINT NOT NULL DEFAULT 0,
	PRIMARY KEY (kind)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COLLATE utf8mb4_bin;

CREATE TABLE fastjobs_names (
	name VARBINARY(1020) NOT NULL,
	until BIGINT NOT NULL,
	PRIMARY KEY (name)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COLLATE utf8mb4_bin;

CREATE INDEX fastjobs_names_until ON fastjobs_names (until);

CREATE TABLE fastjobs_schedules (
	name VARBINARY(1020) NOT NULL,
	run_at BIGINT NOT NULL,
	PRIMARY KEY (name)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COLLATE utf8mb4_bin;

CREATE TABLE fastjobs_schema (
	id SMALLINT NOT NULL AUTO_INCREMENT,
	version INTEGER NOT NULL,
	PRIMARY KEY (id)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COLLATE utf8mb4_bin;

CREATE TABLE fastjobs_slots (
	kind VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	alone_key VARBINARY(32) NOT NULL,
	job_id BIGINT NOT NULL,
	claim BIGINT NOT NULL,
	held_until BIGINT NOT NULL,
	PRIMARY KEY (kind, alone_key)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COLLATE utf8mb4_bin;

CREATE TABLE fastjobs_throttles (
	name VARCHAR(100) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
	`key` VARBINARY(1020) NOT NULL,
	slot INTEGER NOT NULL,
	at BIGINT NOT NULL,
	free_at BIGINT NOT NULL,
	PRIMARY KEY (name, `key`, slot)
)ENGINE=InnoDB CHARSET=utf8mb4 ROW_FORMAT=DYNAMIC COLLATE utf8mb4_bin;

CREATE INDEX fastjobs_throttles_free ON fastjobs_throttles (free_at);

INSERT INTO fastjobs_schema (id, version) VALUES (1, 1);

-- insert
INSERT INTO `fastjobs_jobs` (kind, payload, run_at, created_at, carried) VALUES ;

-- insert_keyed
INSERT INTO `fastjobs_jobs` (kind, payload, run_at, created_at, carried, own_key, unique_key, alone_key, first_push_at, name, keep_name) VALUES ;

-- new_kinds
INSERT INTO `fastjobs_kinds` (kind, first_seen) VALUES ;

-- new_kinds_end
 ON DUPLICATE KEY UPDATE first_seen = `fastjobs_kinds`.first_seen;

-- known_kinds
SELECT kind FROM `fastjobs_kinds` ORDER BY kind;

-- look
SELECT k.kind, k.held_until, k.paused, EXTRACT(SECOND_MICROSECOND FROM SYSDATE(6)), (SELECT j.due FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind >= %s AND j.kind <= %s AND j.state = 0 AND j.due >= %s ORDER BY j.kind, j.due LIMIT 1), (SELECT h.due FROM `fastjobs_jobs` AS h FORCE INDEX (`fastjobs_jobs_due`) WHERE h.kind = %s AND h.state = 1 ORDER BY h.due LIMIT 1), EXTRACT(SECOND_MICROSECOND FROM SYSDATE(6)), NULL FROM `fastjobs_kinds` AS k WHERE k.kind = %s;

-- look_low
SELECT k.kind, k.held_until, k.paused, EXTRACT(SECOND_MICROSECOND FROM SYSDATE(6)), (SELECT j.due FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind >= %s AND j.kind <= %s AND j.state = 0 AND j.due >= %s ORDER BY j.kind, j.due LIMIT 1), NULL, EXTRACT(SECOND_MICROSECOND FROM SYSDATE(6)), NULL FROM `fastjobs_kinds` AS k WHERE k.kind = %s;

-- look_limited
SELECT k.kind, k.held_until, k.paused, EXTRACT(SECOND_MICROSECOND FROM SYSDATE(6)), (SELECT j.due FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind >= %s AND j.kind <= %s AND j.state = 0 AND j.due >= %s ORDER BY j.kind, j.due LIMIT 1), (SELECT h.due FROM `fastjobs_jobs` AS h FORCE INDEX (`fastjobs_jobs_due`) WHERE h.kind = %s AND h.state = 1 ORDER BY h.due LIMIT 1), EXTRACT(SECOND_MICROSECOND FROM SYSDATE(6)), (SELECT COUNT(*) FROM (SELECT 1 FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_due`) WHERE kind >= %s AND kind <= %s AND state = 1 AND due > %s LIMIT %s) AS few) FROM `fastjobs_kinds` AS k WHERE k.kind = %s;

-- look_low_limited
SELECT k.kind, k.held_until, k.paused, EXTRACT(SECOND_MICROSECOND FROM SYSDATE(6)), (SELECT j.due FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind >= %s AND j.kind <= %s AND j.state = 0 AND j.due >= %s ORDER BY j.kind, j.due LIMIT 1), NULL, EXTRACT(SECOND_MICROSECOND FROM SYSDATE(6)), (SELECT COUNT(*) FROM (SELECT 1 FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_due`) WHERE kind >= %s AND kind <= %s AND state = 1 AND due > %s LIMIT %s) AS few) FROM `fastjobs_kinds` AS k WHERE k.kind = %s;

-- heads
(SELECT run_at, id, kind FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_due`) WHERE kind >= %s AND kind <= %s AND state = 0 AND due >= %s AND due <= %s AND (lost <= %s OR attempts >= %s) ORDER BY kind, due, id LIMIT %s);

-- pick
SELECT id, kind, payload, run_at, attempts, claim, lost, error, carried, stop_asked, alone_key, unique_key FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_due`) WHERE kind >= %s AND kind <= %s AND state = 0 AND due >= %s AND due <= %s AND (lost <= %s OR attempts >= %s) ORDER BY kind, due, id LIMIT %s FOR UPDATE SKIP LOCKED;

-- lock_keys
SELECT id FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_unique`) WHERE kind = %s AND unique_key IN %s FOR UPDATE SKIP LOCKED;

-- take
UPDATE `fastjobs_jobs` FORCE INDEX (PRIMARY) SET state = 1, held_until = %s, attempts = attempts + 1, claim = claim + 1, unique_key = NULL WHERE id IN %s;

-- exhaust
UPDATE `fastjobs_jobs` FORCE INDEX (PRIMARY) SET state = 3, held_until = 0, claim = claim + 1, unique_key = NULL, failed_at = %s, error = %s WHERE id = %s;

-- reap
SELECT id, alone_key FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_due`) WHERE kind >= %s AND kind <= %s AND state = 1 AND due <= %s ORDER BY kind, due, id LIMIT %s FOR UPDATE SKIP LOCKED;

-- reaped
UPDATE `fastjobs_jobs` FORCE INDEX (PRIMARY) SET state = 0, held_until = 0, lost = lost + 1 WHERE id IN %s;

-- held
SELECT COUNT(*) FROM (SELECT 1 FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_due`) WHERE kind >= %s AND kind <= %s AND state = 1 AND due > %s LIMIT %s) AS few;

-- lock_kinds
SELECT kind FROM `fastjobs_kinds` FORCE INDEX (PRIMARY) WHERE kind IN %s AND held_until <= %s AND paused = 0 ORDER BY kind FOR UPDATE SKIP LOCKED;

-- slot
SELECT %s AS kind, %s AS alone_key, %s AS job_id, %s AS claim, %s AS held_until;

-- take_slots
INSERT INTO `fastjobs_slots` (kind, alone_key, job_id, claim, held_until) SELECT u.kind, u.alone_key, u.job_id, u.claim, u.held_until FROM ( … ) AS u ON DUPLICATE KEY UPDATE job_id = IF(`fastjobs_slots`.held_until <= %s, u.job_id, `fastjobs_slots`.job_id), claim = IF(`fastjobs_slots`.held_until <= %s, u.claim, `fastjobs_slots`.claim), held_until = IF(`fastjobs_slots`.held_until <= %s, u.held_until, `fastjobs_slots`.held_until);

-- slots
SELECT s.alone_key, s.job_id, s.claim, h.id IS NOT NULL FROM `fastjobs_slots` AS s FORCE INDEX (PRIMARY) LEFT JOIN `fastjobs_jobs` AS h FORCE INDEX (PRIMARY) ON h.id = s.job_id AND h.claim = s.claim AND h.state = 1 WHERE s.kind = %s AND s.alone_key IN %s;

-- set_slot
UPDATE `fastjobs_slots` FORCE INDEX (PRIMARY) SET job_id = %s, claim = %s, held_until = %s WHERE kind = %s AND alone_key = %s;

-- lock_slots
SELECT alone_key, job_id, claim, held_until FROM `fastjobs_slots` FORCE INDEX (PRIMARY) WHERE kind >= %s AND kind <= %s AND alone_key IN %s ORDER BY kind, alone_key FOR UPDATE;

-- extend_slots
UPDATE `fastjobs_slots` FORCE INDEX (PRIMARY) SET held_until = %s WHERE kind = %s AND alone_key IN %s;

-- free_slots
DELETE s FROM JSON_TABLE(%s, '$[*]' COLUMNS (it VARCHAR(2040) PATH '$')) AS u STRAIGHT_JOIN `fastjobs_slots` AS s FORCE INDEX (PRIMARY) ON s.kind = %s AND s.alone_key = UNHEX(u.it) WHERE s.job_id IN %s;

-- park
UPDATE `fastjobs_jobs` FORCE INDEX (PRIMARY) SET state = 2 WHERE id IN %s;

-- behind
SELECT id FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_due`) WHERE kind >= %s AND kind <= %s AND state = 0 AND due >= %s AND due <= %s AND alone_key IN %s ORDER BY kind, due, id LIMIT %s FOR UPDATE SKIP LOCKED;

-- first_parked
(SELECT id, kind, parked_key FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_parked`) WHERE kind = %s AND parked_key = %s ORDER BY run_at, id LIMIT 1);

-- next_parked
SELECT id FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_parked`) WHERE kind = %s AND parked_key = %s ORDER BY run_at, id LIMIT 1 FOR UPDATE SKIP LOCKED;

-- lock_parked
SELECT id FROM `fastjobs_jobs` FORCE INDEX (PRIMARY) WHERE id IN %s AND state = 2 ORDER BY id FOR UPDATE SKIP LOCKED;

-- wake
UPDATE `fastjobs_jobs` FORCE INDEX (PRIMARY) SET state = 0 WHERE id IN %s;

-- claimed
SELECT id, kind, state, claim, attempts, run_at, held_until, failed_at, own_key, unique_key, alone_key, name, keep_name, stop_asked FROM `fastjobs_jobs` FORCE INDEX (PRIMARY) WHERE id IN %s AND state <> 3 ORDER BY id FOR UPDATE SKIP LOCKED;

-- missed
SELECT id, claim, state, held_until FROM `fastjobs_jobs` FORCE INDEX (PRIMARY) WHERE id IN %s AND state <> 3;

-- done
DELETE j FROM JSON_TABLE(%s, '$[*]' COLUMNS (it BIGINT PATH '$')) AS u STRAIGHT_JOIN `fastjobs_jobs` AS j FORCE INDEX (PRIMARY) ON j.id = u.it;

-- change
UPDATE ( … SELECT %s AS id, %s AS state, %s AS held_until, %s AS claim, %s AS attempts, %s AS run_at, %s AS failed_at, %s AS drops_key, %s AS error … ) AS u STRAIGHT_JOIN `fastjobs_jobs` AS j FORCE INDEX (PRIMARY) ON j.id = u.id SET j.state = u.state, j.held_until = u.held_until, j.claim = u.claim, j.attempts = u.attempts, j.run_at = u.run_at, j.failed_at = u.failed_at, j.unique_key = IF(u.drops_key, NULL, j.unique_key), j.error = COALESCE(u.error, j.error);

-- has_key
SELECT id FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_unique`) WHERE kind = %s AND unique_key = %s FOR UPDATE NOWAIT;

-- take_key
UPDATE `fastjobs_jobs` FORCE INDEX (PRIMARY) SET unique_key = own_key WHERE id = %s;

-- hold_back
INSERT INTO `fastjobs_kinds` (kind, held_until, first_seen) SELECT u.kind, u.held_until, u.first_seen FROM (SELECT %s AS kind, %s AS held_until, %s AS first_seen) AS u ON DUPLICATE KEY UPDATE held_until = GREATEST(`fastjobs_kinds`.held_until, u.held_until);

-- waiting
SELECT id, run_at, COALESCE(first_push_at, created_at), alone_key, state FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_unique`) WHERE kind = %s AND unique_key = %s;

-- waiting_now
SELECT id, run_at, COALESCE(first_push_at, created_at), alone_key, state FROM `fastjobs_jobs` FORCE INDEX (PRIMARY) WHERE id = %s AND unique_key = %s FOR UPDATE;

-- lock
SELECT id FROM `fastjobs_jobs` FORCE INDEX (PRIMARY) WHERE id = %s FOR UPDATE SKIP LOCKED;

-- open_keys
SELECT j.claim FROM ( … ) AS u STRAIGHT_JOIN `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_unique`) ON j.kind = %s AND j.unique_key = u.one FOR UPDATE NOWAIT;

-- open_names
SELECT j.claim FROM ( … ) AS u STRAIGHT_JOIN `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_name`) ON j.name = u.one FOR UPDATE NOWAIT;

-- waiting_keys
SELECT j.unique_key FROM ( … ) AS u STRAIGHT_JOIN `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_unique`) ON j.kind = %s AND j.unique_key = u.one;

-- move
UPDATE `fastjobs_jobs` FORCE INDEX (PRIMARY) SET run_at = %s WHERE id = %s;

-- name_taken
SELECT 0 FROM `fastjobs_names` FORCE INDEX (PRIMARY) WHERE name = %s AND until > %s UNION ALL SELECT id FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_name`) WHERE name = %s;

-- name_kept
SELECT 1 FROM `fastjobs_names` FORCE INDEX (PRIMARY) WHERE name = %s AND until > %s;

-- names_taken
SELECT name FROM `fastjobs_names` FORCE INDEX (PRIMARY) WHERE name IN %s AND until > %s UNION ALL SELECT name FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_name`) WHERE name IN %s;

-- unpush
DELETE FROM `fastjobs_jobs` WHERE id = %s;

-- keep_name
INSERT INTO `fastjobs_names` (name, until) SELECT u.name, u.until FROM (SELECT %s AS name, %s AS until) AS u ON DUPLICATE KEY UPDATE until = GREATEST(`fastjobs_names`.until, u.until);

-- name_row
SELECT 1 FROM `fastjobs_names` FORCE INDEX (PRIMARY) WHERE name = %s;

-- lock_name
SELECT 1 FROM `fastjobs_names` FORCE INDEX (PRIMARY) WHERE name = %s FOR UPDATE SKIP LOCKED;

-- keep_longer
UPDATE `fastjobs_names` FORCE INDEX (PRIMARY) SET until = GREATEST(until, %s) WHERE name = %s;

-- mine
SELECT kind, alone_key, name, keep_name FROM `fastjobs_jobs` FORCE INDEX (PRIMARY) WHERE id = %s AND claim = %s AND state <> 3;

-- mine_locked
SELECT kind, alone_key, name, keep_name FROM `fastjobs_jobs` FORCE INDEX (PRIMARY) WHERE id = %s AND claim = %s AND state <> 3 FOR UPDATE;

-- standing
SELECT id, kind, state, claim, held_until, alone_key, name, keep_name FROM `fastjobs_jobs` FORCE INDEX (PRIMARY) WHERE id IN %s AND state <> 3 ORDER BY id FOR UPDATE SKIP LOCKED;

-- there
SELECT id FROM `fastjobs_jobs` FORCE INDEX (PRIMARY) WHERE id IN %s AND state <> 3;

-- ask_to_stop
UPDATE `fastjobs_jobs` FORCE INDEX (PRIMARY) SET stop_asked = 1 WHERE id IN %s;

-- progress
UPDATE `fastjobs_jobs` FORCE INDEX (PRIMARY) SET progress = %s WHERE id = %s;

-- locked_claims
SELECT id, claim FROM `fastjobs_jobs` FORCE INDEX (PRIMARY) WHERE id IN %s AND state <> 3 ORDER BY id FOR UPDATE SKIP LOCKED;

-- parked_kinds
SELECT k.kind FROM `fastjobs_kinds` AS k WHERE (SELECT j.id FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = k.kind AND j.state = 2 LIMIT 1) IS NOT NULL;

-- next_key
SELECT parked_key FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_parked`) WHERE kind >= %s AND kind <= %s AND parked_key > %s ORDER BY kind, parked_key LIMIT 1;

-- is_held
SELECT 1 FROM `fastjobs_slots` AS s FORCE INDEX (PRIMARY) STRAIGHT_JOIN `fastjobs_jobs` AS h FORCE INDEX (PRIMARY) ON h.id = s.job_id WHERE s.kind = %s AND s.alone_key = %s AND s.held_until > %s AND h.claim = s.claim AND h.state = 1;

-- old_failed
SELECT id, name, keep_name FROM `fastjobs_jobs` FORCE INDEX (`fastjobs_jobs_due`) WHERE kind >= %s AND kind <= %s AND state = 3 AND due < %s ORDER BY kind, due, id LIMIT %s FOR UPDATE SKIP LOCKED;

-- old_names
SELECT name FROM `fastjobs_names` WHERE until <= %s ORDER BY until LIMIT %s FOR UPDATE SKIP LOCKED;

-- delete_names
DELETE n FROM JSON_TABLE(%s, '$[*]' COLUMNS (it VARCHAR(2040) PATH '$')) AS u STRAIGHT_JOIN `fastjobs_names` AS n FORCE INDEX (PRIMARY) ON n.name = UNHEX(u.it);

-- old_slots
SELECT kind, alone_key FROM `fastjobs_slots` WHERE held_until <= %s LIMIT %s FOR UPDATE SKIP LOCKED;

-- delete_slot
DELETE FROM `fastjobs_slots` WHERE kind = %s AND alone_key = %s;

-- old_places
SELECT name, `key`, slot FROM `fastjobs_throttles` WHERE free_at <= %s ORDER BY free_at LIMIT %s FOR UPDATE SKIP LOCKED;

-- delete_place
DELETE FROM `fastjobs_throttles` WHERE name = %s AND `key` = %s AND slot = %s;

-- failed
SELECT name, keep_name FROM `fastjobs_jobs` FORCE INDEX (PRIMARY) WHERE id IN %s AND state = 3;

-- get_lock
SELECT GET_LOCK(%s, %s);

-- release_lock
SELECT RELEASE_LOCK(%s);

-- places
SELECT slot, at FROM `fastjobs_throttles` FORCE INDEX (PRIMARY) WHERE name = %s AND `key` = %s AND at + %s > %s;

-- place
SELECT %s AS name, %s AS `key`, %s AS slot, %s AS at, %s AS free_at;

-- take_places
INSERT INTO `fastjobs_throttles` (name, `key`, slot, at, free_at) SELECT u.name, u.`key`, u.slot, u.at, u.free_at FROM ( … ) AS u ON DUPLICATE KEY UPDATE at = u.at, free_at = u.free_at;

-- settle_places
UPDATE `fastjobs_throttles` FORCE INDEX (PRIMARY) SET free_at = free_at - at + %s, at = %s WHERE name = %s AND `key` = %s AND at = %s AND slot IN %s;

-- free_places
DELETE t FROM `fastjobs_throttles` AS t FORCE INDEX (PRIMARY) WHERE t.name = %s AND t.`key` = %s AND t.at = %s AND t.slot IN %s;

-- runs
SELECT name, run_at FROM `fastjobs_schedules` FORCE INDEX (PRIMARY) WHERE name IN %s;

-- run
SELECT run_at FROM `fastjobs_schedules` WHERE name = %s FOR UPDATE;

-- first_run
INSERT INTO `fastjobs_schedules` (name, run_at) VALUES (%s, %s);

-- move_run
UPDATE `fastjobs_schedules` FORCE INDEX (PRIMARY) SET run_at = %s WHERE name = %s;

-- news
SELECT (SELECT id FROM `fastjobs_jobs` FORCE INDEX (PRIMARY) WHERE id > %s ORDER BY id DESC LIMIT 1), (SELECT run_at FROM `fastjobs_schedules` FORCE INDEX (PRIMARY) WHERE name = '');

-- ring
INSERT INTO `fastjobs_schedules` (name, run_at) VALUES ('', 1) ON DUPLICATE KEY UPDATE run_at = `fastjobs_schedules`.run_at + 1;

-- session
SELECT @@SESSION.auto_increment_increment, @@SESSION.max_allowed_packet, @@SESSION.character_set_client, @@SESSION.character_set_connection, DATABASE(), /*!80000 @@SESSION.transaction_isolation */ /*M!100600 @@SESSION.tx_isolation */;

-- looks.counts
SELECT k.kind, (SELECT count(*) FROM (SELECT 1 FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 0 LIMIT :most) AS few), (SELECT count(*) FROM (SELECT 1 FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 0 AND j.due <= :now LIMIT :most) AS few), (SELECT count(*) FROM (SELECT 1 FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 1 LIMIT :most) AS few), (SELECT count(*) FROM (SELECT 1 FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 2 LIMIT :most) AS few), (SELECT count(*) FROM (SELECT 1 FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 3 LIMIT :most) AS few), (SELECT j.due FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 0 ORDER BY j.due, j.id LIMIT 1), k.held_until, k.paused FROM `fastjobs_kinds` AS k WHERE k.kind = :kind ORDER BY k.kind;

-- looks.job
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), octet_length(j.payload), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, CASE WHEN j.state = 2 THEN (SELECT h.id FROM `fastjobs_slots` AS s FORCE INDEX (PRIMARY) STRAIGHT_JOIN `fastjobs_jobs` AS h FORCE INDEX (PRIMARY) ON h.id = s.job_id WHERE s.kind = j.kind AND s.alone_key = j.alone_key AND h.claim = s.claim AND h.state + 0 = 1 AND h.held_until > :now LIMIT 1) END, (SELECT k.held_until FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT k.paused FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM `fastjobs_jobs` AS h FORCE INDEX (`fastjobs_jobs_due`) WHERE h.kind = :kind AND h.state = 1 AND h.due > :now LIMIT 1001) AS few) FROM `fastjobs_jobs` AS j FORCE INDEX (PRIMARY) WHERE j.id = :id;

-- looks.waiting
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), octet_length(j.payload), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT k.paused FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM `fastjobs_jobs` AS h FORCE INDEX (`fastjobs_jobs_due`) WHERE h.kind = :kind AND h.state = 1 AND h.due > :now LIMIT 1001) AS few) FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 0 ORDER BY j.due, j.id LIMIT :most;

-- looks.waiting
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), octet_length(j.payload), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT k.paused FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM `fastjobs_jobs` AS h FORCE INDEX (`fastjobs_jobs_due`) WHERE h.kind = :kind AND h.state = 1 AND h.due > :now LIMIT 1001) AS few) FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 0 AND j.due = :at AND j.id > :last ORDER BY j.due, j.id LIMIT :most;

-- looks.waiting
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), octet_length(j.payload), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT k.paused FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM `fastjobs_jobs` AS h FORCE INDEX (`fastjobs_jobs_due`) WHERE h.kind = :kind AND h.state = 1 AND h.due > :now LIMIT 1001) AS few) FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 0 AND j.due > :at ORDER BY j.due, j.id LIMIT :most;

-- looks.held
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), octet_length(j.payload), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT k.paused FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM `fastjobs_jobs` AS h FORCE INDEX (`fastjobs_jobs_due`) WHERE h.kind = :kind AND h.state = 1 AND h.due > :now LIMIT 1001) AS few) FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 1 ORDER BY j.due, j.id LIMIT :most;

-- looks.held
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), octet_length(j.payload), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT k.paused FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM `fastjobs_jobs` AS h FORCE INDEX (`fastjobs_jobs_due`) WHERE h.kind = :kind AND h.state = 1 AND h.due > :now LIMIT 1001) AS few) FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 1 AND j.due = :at AND j.id > :last ORDER BY j.due, j.id LIMIT :most;

-- looks.held
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), octet_length(j.payload), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT k.paused FROM `fastjobs_kinds` AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM `fastjobs_jobs` AS h FORCE INDEX (`fastjobs_jobs_due`) WHERE h.kind = :kind AND h.state = 1 AND h.due > :now LIMIT 1001) AS few) FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 1 AND j.due > :at ORDER BY j.due, j.id LIMIT :most;

-- looks.failed
SELECT j.id, j.due FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 3 ORDER BY j.due DESC, j.id DESC LIMIT :most;

-- looks.failed
SELECT j.id, j.due FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 3 AND j.due = :at AND j.id < :last ORDER BY j.due DESC, j.id DESC LIMIT :most;

-- looks.failed
SELECT j.id, j.due FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.kind = :kind AND j.state = 3 AND j.due < :at ORDER BY j.due DESC, j.id DESC LIMIT :most;

-- looks.failed_kind
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, octet_length(j.payload), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.state = 3 AND j.kind = :kind ORDER BY j.due DESC, j.id DESC LIMIT :most;

-- looks.failed_kind
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, octet_length(j.payload), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.state = 3 AND j.kind = :kind AND j.due = :at AND j.id < :last ORDER BY j.due DESC, j.id DESC LIMIT :most;

-- looks.failed_kind
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, octet_length(j.payload), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM `fastjobs_jobs` AS j FORCE INDEX (`fastjobs_jobs_due`) WHERE j.state = 3 AND j.kind = :kind AND j.due < :at ORDER BY j.due DESC, j.id DESC LIMIT :most;

-- looks.kinds
SELECT kind FROM `fastjobs_kinds` ORDER BY kind;

-- looks.kind
SELECT j.kind FROM `fastjobs_jobs` AS j FORCE INDEX (PRIMARY) WHERE j.id = :id;

-- looks.these
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, octet_length(j.payload), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM `fastjobs_jobs` AS j FORCE INDEX (PRIMARY) WHERE j.id IN (__[POSTCOMPILE_ids]) AND j.state = 3;
