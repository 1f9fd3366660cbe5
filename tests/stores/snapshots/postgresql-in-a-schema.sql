CREATE TABLE own.fastjobs_jobs (
	id BIGINT GENERATED ALWAYS AS IDENTITY,
	kind TEXT COLLATE "C" NOT NULL,
	state SMALLINT DEFAULT 0 NOT NULL,
	priority INTEGER DEFAULT 0 NOT NULL,
	run_at BIGINT NOT NULL,
	held_until BIGINT DEFAULT 0 NOT NULL,
	attempts INTEGER DEFAULT 0 NOT NULL,
	claim BIGINT DEFAULT 0 NOT NULL,
	lost INTEGER DEFAULT 0 NOT NULL,
	own_key BYTEA,
	unique_key BYTEA,
	alone_key BYTEA,
	name TEXT COLLATE "C",
	keep_name BIGINT,
	first_push_at BIGINT,
	stop_asked SMALLINT DEFAULT 0 NOT NULL,
	progress TEXT,
	created_at BIGINT DEFAULT 0 NOT NULL,
	failed_at BIGINT,
	payload TEXT NOT NULL,
	carried TEXT,
	error TEXT,
	CONSTRAINT fastjobs_jobs_pk PRIMARY KEY (id)
);

CREATE INDEX fastjobs_jobs_failed ON own.fastjobs_jobs (failed_at, id) WHERE state = 3;

CREATE INDEX fastjobs_jobs_failed_kind ON own.fastjobs_jobs (kind, failed_at, id) WHERE state = 3;

CREATE INDEX fastjobs_jobs_held ON own.fastjobs_jobs (kind, held_until) WHERE state = 1;

CREATE UNIQUE INDEX fastjobs_jobs_name ON own.fastjobs_jobs (name) WHERE name IS NOT NULL;

CREATE INDEX fastjobs_jobs_parked ON own.fastjobs_jobs (kind, alone_key, run_at, id) WHERE state = 2;

CREATE INDEX fastjobs_jobs_ready ON own.fastjobs_jobs (kind, run_at, id) WHERE state = 0;

CREATE UNIQUE INDEX fastjobs_jobs_unique ON own.fastjobs_jobs (kind, unique_key) WHERE unique_key IS NOT NULL;

CREATE TABLE own.fastjobs_kinds (
	kind TEXT COLLATE "C" NOT NULL,
	held_until BIGINT DEFAULT 0 NOT NULL,
	paused SMALLINT DEFAULT 0 NOT NULL,
	first_seen BIGINT DEFAULT 0 NOT NULL,
	CONSTRAINT fastjobs_kinds_pk PRIMARY KEY (kind)
);

CREATE TABLE own.fastjobs_names (
	name TEXT COLLATE "C" NOT NULL,
	until BIGINT NOT NULL,
	CONSTRAINT fastjobs_names_pk PRIMARY KEY (name)
);

CREATE INDEX fastjobs_names_until ON own.fastjobs_names (until);

CREATE TABLE own.fastjobs_schedules (
	name TEXT COLLATE "C" NOT NULL,
	run_at BIGINT NOT NULL,
	CONSTRAINT fastjobs_schedules_pk PRIMARY KEY (name)
);

CREATE TABLE own.fastjobs_schema (
	id SMALLSERIAL NOT NULL,
	version INTEGER NOT NULL,
	CONSTRAINT fastjobs_schema_pk PRIMARY KEY (id)
);

CREATE TABLE own.fastjobs_slots (
	kind TEXT COLLATE "C" NOT NULL,
	alone_key BYTEA NOT NULL,
	job_id BIGINT NOT NULL,
	claim BIGINT NOT NULL,
	held_until BIGINT NOT NULL,
	CONSTRAINT fastjobs_slots_pk PRIMARY KEY (kind, alone_key)
);

CREATE TABLE own.fastjobs_throttles (
	name TEXT COLLATE "C" NOT NULL,
	key TEXT COLLATE "C" NOT NULL,
	slot INTEGER NOT NULL,
	at BIGINT NOT NULL,
	CONSTRAINT fastjobs_throttles_pk PRIMARY KEY (name, key, slot)
);

CREATE INDEX fastjobs_throttles_at ON own.fastjobs_throttles (at);

ALTER TABLE "own"."fastjobs_jobs" SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = false);

CREATE FUNCTION "own"."fastjobs_exhausted_1"(p_attempts integer, p_lost integer, p_error text, p_limit integer)
RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_text text;
  v_bytes bytea;
  v_end integer := 4093;
BEGIN
  IF p_lost > 0 THEN
    v_text := 'LostWorker: lost its worker ' || CASE WHEN p_lost = 1 THEN 'once' ELSE p_lost || ' times' END
      || ', the last in attempt ' || p_attempts || ' of ' || p_limit;
  ELSE
    v_text := 'OutOfAttempts: its kind has ' || p_limit || ' attempts now, and it has used ' || p_attempts;
  END IF;
  IF p_error <> '' THEN
    v_text := v_text || '; before that: ' || p_error;
  END IF;
  v_bytes := convert_to(v_text, 'UTF8');
  IF octet_length(v_bytes) <= 4096 THEN
    RETURN v_text;
  END IF;
  -- Cut where a character begins.
  WHILE get_byte(v_bytes, v_end) & 192 = 128 LOOP
    v_end := v_end - 1;
  END LOOP;
  RETURN convert_from(substring(v_bytes FROM 1 FOR v_end), 'UTF8') || chr(8230);
END $$;

CREATE FUNCTION "own"."fastjobs_claim_1"(
  p_kinds text[], p_holds bigint[], p_attempts integer[], p_limits integer[], p_priorities integer[],
  p_levels integer[], p_ahead_ok boolean[], p_floors bigint[], p_others boolean, p_limit integer, p_free integer,
  p_full boolean, p_now bigint
) RETURNS TABLE (
  o_what integer, o_id bigint, o_kind text, o_payload text, o_run_at bigint, o_attempts integer, o_claim bigint,
  o_lost integer, o_error text, o_carried text
) LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_last integer := cardinality(p_kinds);
  v_asked text[] := p_kinds;
  v_kinds text[]; v_terms integer[];
  v_some text[]; v_some_terms integer[];
  v_rooms integer[] := p_limits;
  v_left integer := p_limit;
  v_free integer := p_free;
  v_priority integer; v_term integer; v_count integer;
  v_round integer := 0;
  v_again integer := 0;
  v_next bigint;
  v_met bigint := pg_stat_get_xact_tuples_returned('"own"."fastjobs_jobs_ready"'::regclass) - pg_stat_get_xact_tuples_fetched('"own"."fastjobs_jobs_ready"'::regclass) + pg_stat_get_xact_tuples_returned('"own"."fastjobs_jobs_held"'::regclass) - pg_stat_get_xact_tuples_fetched('"own"."fastjobs_jobs_held"'::regclass);
  v_ids bigint[]; v_tids tid[]; v_spent tid[];
  v_used integer; v_out integer;
BEGIN
  -- Which kinds: neither held back nor paused.
  IF p_others THEN
    SELECT array_agg(a.kind) INTO v_asked FROM (
      SELECT u.kind FROM unnest(p_kinds[:v_last - 1]) u(kind) UNION SELECT k.kind FROM "own"."fastjobs_kinds" k) a;
  END IF;
  SELECT array_agg(a.kind), array_agg(coalesce(array_position(p_kinds, a.kind), v_last)) INTO v_kinds, v_terms
  FROM unnest(v_asked) a(kind)
  WHERE NOT EXISTS (
    SELECT 1 FROM "own"."fastjobs_kinds" k WHERE k.kind = a.kind AND (k.held_until > p_now OR k.paused <> 0));

  IF p_full AND v_left > 0 AND v_kinds IS NOT NULL THEN
    -- Holds that ran out: their jobs wait again, and their claims may mark them until another claim takes them.
    v_ids := ARRAY(
      SELECT h.id FROM unnest(v_kinds) a(kind) CROSS JOIN LATERAL (
        SELECT j.id FROM "own"."fastjobs_jobs" j WHERE j.kind = a.kind AND j.state = 1 AND j.held_until <= p_now
        ORDER BY j.held_until LIMIT 1000 FOR UPDATE SKIP LOCKED) h);
    IF cardinality(v_ids) > 0 THEN
      UPDATE "own"."fastjobs_jobs" j SET state = 0, held_until = 0, lost = j.lost + 1 WHERE j.id = ANY (v_ids);
      v_again := (cardinality(v_ids) >= 1000)::integer;
    END IF;
  END IF;

  FOREACH v_priority IN ARRAY p_levels LOOP
    EXIT WHEN v_left <= 0;
    IF cardinality(p_levels) = 1 THEN
      v_some := v_kinds;
      v_some_terms := v_terms;
    ELSE
      SELECT array_agg(a.kind), array_agg(a.term) INTO v_some, v_some_terms
      FROM unnest(v_kinds, v_terms) a(kind, term) WHERE p_priorities[a.term] = v_priority;
    END IF;
    CONTINUE WHEN v_some IS NULL;
    LOOP
      EXIT WHEN v_left <= 0;
      IF v_round >= 8 THEN
        v_again := 1;
        EXIT;
      END IF;
      v_round := v_round + 1;
      -- Which jobs. Their locks are taken where it's known how many of each kind there are to be: SKIP LOCKED then
      -- passes over what another claim has, and takes the next.
      IF cardinality(v_some) = 1 THEN
        v_term := v_some_terms[1];
        SELECT array_agg(t.ctid), count(*) FILTER (WHERE t.lost > 0 OR NOT p_ahead_ok[v_term]),
          count(*) FILTER (WHERE t.attempts >= p_attempts[v_term]) INTO v_tids, v_used, v_out
        FROM (
          SELECT j.ctid, j.lost, j.attempts FROM "own"."fastjobs_jobs" j
          WHERE j.kind = v_some[1] AND j.state = 0 AND j.run_at >= p_floors[v_term] AND j.run_at <= p_now
            AND (v_free > 0 OR j.lost = 0 OR j.attempts >= p_attempts[v_term])
          ORDER BY j.run_at, j.id
          LIMIT greatest(least(v_left, v_rooms[v_term], CASE WHEN NOT p_ahead_ok[v_term] THEN v_free END), 0)
          FOR UPDATE SKIP LOCKED) t;
      ELSE
        WITH k AS MATERIALIZED (
          SELECT a.kind, a.term, p_floors[a.term] AS floor,
            greatest(least(v_left, v_rooms[a.term], CASE WHEN NOT p_ahead_ok[a.term] THEN v_free END), 0) AS room
          FROM unnest(v_some, v_some_terms) a(kind, term)
        ), heads AS MATERIALIZED (
          SELECT k.kind, k.term, k.room, h.run_at, h.id FROM k CROSS JOIN LATERAL (
            SELECT j.run_at, j.id FROM "own"."fastjobs_jobs" j
            WHERE j.kind = k.kind AND j.state = 0 AND j.run_at >= k.floor AND j.run_at <= p_now AND (v_free > 0 OR j.lost = 0 OR j.attempts >= p_attempts[k.term])
            ORDER BY j.run_at, j.id LIMIT k.room) h
        ), roomy AS (
          -- The other kinds share one room.
          SELECT h.kind, h.term, h.run_at, h.id FROM heads h WHERE NOT p_others OR p_limits[v_last] IS NULL
          UNION ALL
          SELECT r.kind, r.term, r.run_at, r.id FROM (
            SELECT h.*, row_number() OVER (PARTITION BY h.term ORDER BY h.run_at, h.id) AS nth FROM heads h
            WHERE p_others AND p_limits[v_last] IS NOT NULL) r
          WHERE r.nth <= r.room
        ), quota AS MATERIALIZED (
          SELECT t.kind, t.term, count(*) AS most FROM (
            SELECT r.kind, r.term FROM roomy r ORDER BY r.run_at, r.id LIMIT v_left) t
          GROUP BY t.kind, t.term
        ), picked AS MATERIALIZED (
          SELECT p.ctid, p.lost, p.attempts, k.term FROM quota k CROSS JOIN LATERAL (
            SELECT j.ctid, j.lost, j.attempts FROM "own"."fastjobs_jobs" j
            WHERE j.kind = k.kind AND j.state = 0 AND j.run_at >= p_floors[k.term] AND j.run_at <= p_now
              AND (v_free > 0 OR j.lost = 0 OR j.attempts >= p_attempts[k.term])
            ORDER BY j.run_at, j.id LIMIT k.most FOR UPDATE SKIP LOCKED) p
        )
        SELECT array_agg(p.ctid), count(*) FILTER (WHERE p.lost > 0 OR NOT p_ahead_ok[p.term]),
          count(*) FILTER (WHERE p.attempts >= p_attempts[p.term]) INTO v_tids, v_used, v_out
        FROM picked p;
      END IF;
      EXIT WHEN v_tids IS NULL;

      v_spent := NULL;
      IF v_out > 0 OR v_used > v_free THEN
        -- Some are not for this claim to return: it fails those out of attempts, and leaves those for a free worker.
        WITH c AS (
          SELECT j.ctid AS tid, j.id, j.run_at, j.attempts >= p_attempts[t.term] AS is_spent,
            j.lost > 0 OR NOT p_ahead_ok[t.term] AS is_for_free
          FROM "own"."fastjobs_jobs" j CROSS JOIN LATERAL (SELECT coalesce(array_position(p_kinds, j.kind), v_last) AS term) t
          WHERE j.ctid = ANY (v_tids)
        ), r AS (
          SELECT c.*, count(*) FILTER (WHERE c.is_for_free AND NOT c.is_spent) OVER (ORDER BY c.run_at, c.id) AS nth
          FROM c
        )
        SELECT array_agg(r.tid) FILTER (WHERE NOT r.is_spent AND (NOT r.is_for_free OR r.nth <= v_free)),
          array_agg(r.tid) FILTER (WHERE r.is_spent),
          count(*) FILTER (WHERE NOT r.is_spent AND r.is_for_free AND r.nth <= v_free)
        INTO v_tids, v_spent, v_used FROM r;
      ELSE
        v_out := -1;
      END IF;

      IF v_spent IS NOT NULL THEN
        RETURN QUERY SELECT 1, j.id, j.kind, j.payload, j.run_at, j.attempts, j.claim, j.lost, j.error, j.carried
          FROM "own"."fastjobs_jobs" j WHERE j.ctid = ANY (v_spent);
        UPDATE "own"."fastjobs_jobs" j SET state = 3, held_until = 0, claim = j.claim + 1, unique_key = NULL, failed_at = p_now,
          error = "own"."fastjobs_exhausted_1"(
            j.attempts, j.lost, j.error, p_attempts[coalesce(array_position(p_kinds, j.kind), v_last)])
        WHERE j.ctid = ANY (v_spent);
      END IF;

      IF v_tids IS NOT NULL THEN
        IF v_out >= 0 THEN
          FOR v_term, v_count IN
            SELECT t.term, count(*) FROM "own"."fastjobs_jobs" j
            CROSS JOIN LATERAL (SELECT coalesce(array_position(p_kinds, j.kind), v_last) AS term) t
            WHERE j.ctid = ANY (v_tids) GROUP BY t.term
          LOOP
            v_rooms[v_term] := v_rooms[v_term] - v_count;
          END LOOP;
        END IF;
        RETURN QUERY UPDATE "own"."fastjobs_jobs" j SET state = 1, attempts = j.attempts + 1, claim = j.claim + 1,
          held_until = p_now + p_holds[coalesce(array_position(p_kinds, j.kind), v_last)],
          unique_key = NULL, stop_asked = 0
        WHERE j.ctid = ANY (v_tids)
        RETURNING 0, j.id, j.kind, j.payload, j.run_at, j.attempts, j.claim, j.lost, j.error, j.carried;
        v_left := v_left - cardinality(v_tids);
        v_free := v_free - v_used;
      END IF;
      EXIT WHEN v_out < 0;
    END LOOP;
  END LOOP;

  IF v_left > 0 THEN
    SELECT min(greatest(f.run_at, k.held_until)) INTO v_next
    FROM unnest(v_asked) a(kind) LEFT JOIN "own"."fastjobs_kinds" k ON k.kind = a.kind
    CROSS JOIN LATERAL (
      SELECT j.run_at FROM "own"."fastjobs_jobs" j WHERE j.kind = a.kind AND j.state = 0
        AND j.run_at >= p_floors[coalesce(array_position(p_kinds, a.kind), v_last)]
      ORDER BY j.run_at, j.id LIMIT 1) f
    WHERE k.paused IS NULL OR k.paused = 0;
  END IF;
  o_what := 2;
  o_id := v_next;
  o_attempts := pg_stat_get_xact_tuples_returned('"own"."fastjobs_jobs_ready"'::regclass) - pg_stat_get_xact_tuples_fetched('"own"."fastjobs_jobs_ready"'::regclass) + pg_stat_get_xact_tuples_returned('"own"."fastjobs_jobs_held"'::regclass) - pg_stat_get_xact_tuples_fetched('"own"."fastjobs_jobs_held"'::regclass) - v_met;
  o_lost := v_again;
  RETURN NEXT;
END $$;

CREATE FUNCTION "own"."fastjobs_mark_1"(
  p_done bigint[], p_done_claims bigint[],
  p_ids bigint[], p_claims bigint[], p_what integer[], p_at bigint[], p_errors text[], p_now bigint
) RETURNS TABLE (o_missed bigint[], o_busy bigint[], o_stop bigint[]) LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_got bigint[]; v_tids tid[];
  v_what integer[]; v_at bigint[]; v_errors text[];
  v_missed bigint[];
BEGIN
  -- What someone else's transaction has locked is passed over, and looked at once more: it's that claim's still, or
  -- another's by now. Nothing here ever waits.
  IF cardinality(p_done) > 0 THEN
    SELECT array_agg(l.id), array_agg(l.ctid) INTO v_got, v_tids
    FROM unnest(p_done, p_done_claims) u(id, claim) CROSS JOIN LATERAL (
      SELECT j.id, j.ctid FROM "own"."fastjobs_jobs" j WHERE j.id = u.id AND j.claim = u.claim AND j.state <> 3 FOR UPDATE SKIP LOCKED) l;
    DELETE FROM "own"."fastjobs_jobs" j WHERE j.ctid = ANY (v_tids);
    IF cardinality(v_got) IS DISTINCT FROM cardinality(p_done) THEN
      o_missed := ARRAY(SELECT u.id FROM unnest(p_done) u(id) EXCEPT SELECT g.id FROM unnest(v_got) g(id));
      o_busy := ARRAY(
        SELECT u.id FROM unnest(p_done, p_done_claims) u(id, claim)
        CROSS JOIN LATERAL (SELECT 1 FROM "own"."fastjobs_jobs" j WHERE j.id = u.id AND j.claim = u.claim AND j.state <> 3 LIMIT 1) l WHERE u.id = ANY (o_missed));
    END IF;
  END IF;
  IF cardinality(p_ids) > 0 THEN
    SELECT array_agg(l.id), array_agg(l.ctid), array_agg(u.what), array_agg(u.at), array_agg(u.error)
    INTO v_got, v_tids, v_what, v_at, v_errors
    FROM unnest(p_ids, p_claims, p_what, p_at, p_errors) u(id, claim, what, at, error) CROSS JOIN LATERAL (
      SELECT j.id, j.ctid FROM "own"."fastjobs_jobs" j WHERE j.id = u.id AND j.claim = u.claim AND j.state <> 3 AND (u.what <> 4 OR (j.state = 1 AND j.held_until > p_now)) FOR UPDATE SKIP LOCKED) l;
    WITH changed AS (
      UPDATE "own"."fastjobs_jobs" j SET
        state = CASE u.what WHEN 4 THEN j.state WHEN 2 THEN 3 ELSE 0 END,
        held_until = CASE u.what WHEN 4 THEN u.at ELSE 0 END,
        claim = CASE u.what WHEN 4 THEN j.claim ELSE j.claim + 1 END,
        attempts = CASE u.what WHEN 3 THEN greatest(j.attempts - 1, 0) ELSE j.attempts END,
        run_at = CASE WHEN u.what IN (1, 3) THEN coalesce(u.at, j.run_at) ELSE j.run_at END,
        failed_at = CASE u.what WHEN 2 THEN u.at ELSE j.failed_at END,
        unique_key = CASE u.what WHEN 2 THEN NULL ELSE j.unique_key END,
        error = coalesce(u.error, j.error)
      FROM unnest(v_tids, v_what, v_at, v_errors) u(tid, what, at, error)
      -- By the id it would be a join that reads an index of all jobs, if there were few as it was planned.
      WHERE j.ctid = u.tid
      RETURNING j.id, u.what = 4 AND j.stop_asked <> 0 AS is_to_stop
    )
    SELECT array_agg(c.id) INTO o_stop FROM changed c WHERE c.is_to_stop;
    IF cardinality(v_got) IS DISTINCT FROM cardinality(p_ids) THEN
      v_missed := ARRAY(SELECT u.id FROM unnest(p_ids) u(id) EXCEPT SELECT g.id FROM unnest(v_got) g(id));
      o_missed := o_missed || v_missed;
      o_busy := o_busy || ARRAY(
        SELECT u.id FROM unnest(p_ids, p_claims, p_what) u(id, claim, what)
        CROSS JOIN LATERAL (SELECT 1 FROM "own"."fastjobs_jobs" j WHERE j.id = u.id AND j.claim = u.claim AND j.state <> 3 AND (u.what <> 4 OR (j.state = 1 AND j.held_until > p_now)) LIMIT 1) l
        WHERE u.id = ANY (v_missed));
    END IF;
  END IF;
  RETURN NEXT;
END $$;

INSERT INTO own.fastjobs_schema (id, version) VALUES (1, 1);

-- channel
own.fastjobs_jobs;

-- push
INSERT INTO "own"."fastjobs_jobs" (kind, payload, run_at, created_at, carried) VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::text) RETURNING id;

-- push_notify
INSERT INTO "own"."fastjobs_jobs" (kind, payload, run_at, created_at, carried) VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::text) RETURNING id, pg_notify($6::text, '');

-- push_many
WITH pushed AS (INSERT INTO "own"."fastjobs_jobs" (kind, payload, run_at, created_at, carried) SELECT u.kind, u.payload, u.run_at, $4::bigint, u.carried FROM unnest($1::text[], $2::text[], $3::bigint[], $5::text[]) WITH ORDINALITY AS u(kind, payload, run_at, carried, nth) ORDER BY u.nth RETURNING id) SELECT array_agg(id ORDER BY id) FROM pushed;

-- push_many_notify
WITH pushed AS (INSERT INTO "own"."fastjobs_jobs" (kind, payload, run_at, created_at, carried) SELECT u.kind, u.payload, u.run_at, $4::bigint, u.carried FROM unnest($1::text[], $2::text[], $3::bigint[], $5::text[]) WITH ORDINALITY AS u(kind, payload, run_at, carried, nth) ORDER BY u.nth RETURNING id) SELECT array_agg(id ORDER BY id), pg_notify($6::text, '') FROM pushed;

-- push_alike
WITH pushed AS (INSERT INTO "own"."fastjobs_jobs" (kind, payload, run_at, created_at, carried) SELECT $1::text, u.payload, $3::bigint, $4::bigint, $5::text FROM unnest($2::text[]) WITH ORDINALITY AS u(payload, nth) ORDER BY u.nth RETURNING id) SELECT array_agg(id ORDER BY id) FROM pushed;

-- push_alike_notify
WITH pushed AS (INSERT INTO "own"."fastjobs_jobs" (kind, payload, run_at, created_at, carried) SELECT $1::text, u.payload, $3::bigint, $4::bigint, $5::text FROM unnest($2::text[]) WITH ORDINALITY AS u(payload, nth) ORDER BY u.nth RETURNING id) SELECT array_agg(id ORDER BY id), pg_notify($6::text, '') FROM pushed;

-- new_kinds
INSERT INTO "own"."fastjobs_kinds" (kind, first_seen) SELECT DISTINCT u.kind, $2::bigint FROM unnest($1::text[]) AS u(kind) ORDER BY u.kind ON CONFLICT DO NOTHING;

-- known_kinds
SELECT kind FROM "own"."fastjobs_kinds";

-- claim
SELECT * FROM "own"."fastjobs_claim_1"($1::text[], $2::bigint[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::boolean[], $8::bigint[], $9::boolean, $10::integer, $11::integer, $12::boolean, $13::bigint);

-- mark
SELECT * FROM "own"."fastjobs_mark_1"($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::integer[], $6::bigint[], $7::text[], $8::bigint);
