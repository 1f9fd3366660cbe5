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
	free_at BIGINT NOT NULL,
	CONSTRAINT fastjobs_throttles_pk PRIMARY KEY (name, key, slot)
);

CREATE INDEX fastjobs_throttles_free ON own.fastjobs_throttles (free_at);

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

CREATE FUNCTION "own"."fastjobs_promote_1"(p_kinds text[], p_keys bytea[]) RETURNS integer LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_ids bigint[];
BEGIN
  v_ids := ARRAY(
    SELECT h.id FROM (SELECT DISTINCT u.kind, u.key FROM unnest(p_kinds, p_keys) u(kind, key)) u
    CROSS JOIN LATERAL (
      SELECT j.id FROM "own"."fastjobs_jobs" j WHERE j.kind = u.kind AND j.alone_key = u.key AND j.state = 2
      ORDER BY j.run_at, j.id LIMIT 1 FOR UPDATE SKIP LOCKED) h);
  IF cardinality(v_ids) > 0 THEN
    UPDATE "own"."fastjobs_jobs" j SET state = 0 WHERE j.id = ANY (v_ids);
  END IF;
  RETURN cardinality(v_ids);
END $$;

CREATE FUNCTION "own"."fastjobs_promote_freed_1"(p_kinds text[], p_keys bytea[]) RETURNS integer LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
  PERFORM 1 FROM (SELECT DISTINCT u.kind, u.key FROM unnest(p_kinds, p_keys) u(kind, key)) a
  JOIN "own"."fastjobs_slots" s ON s.kind = a.kind AND s.alone_key = a.key
  ORDER BY s.kind, s.alone_key FOR UPDATE OF s;
  RETURN "own"."fastjobs_promote_1"(p_kinds, p_keys);
END $$;

CREATE FUNCTION "own"."fastjobs_keep_names_1"(p_names text[], p_keeps bigint[], p_now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO "own"."fastjobs_names" AS n (name, until)
  SELECT u.name, max(p_now + u.keep) FROM unnest(p_names, p_keeps) u(name, keep)
  WHERE u.keep > 0 GROUP BY u.name ORDER BY u.name COLLATE "C"
  ON CONFLICT (name) DO UPDATE SET until = greatest(n.until, excluded.until);
END $$;

CREATE FUNCTION "own"."fastjobs_claim_1"(
  p_kinds text[], p_holds bigint[], p_attempts integer[], p_limits integer[], p_priorities integer[],
  p_levels integer[], p_ahead_ok boolean[], p_floors bigint[], p_others boolean, p_limit integer, p_free integer,
  p_full boolean, p_now bigint, p_at_once integer[]
) RETURNS TABLE (
  o_what integer, o_id bigint, o_kind text, o_payload text, o_run_at bigint, o_attempts integer, o_claim bigint, o_lost integer, o_error text, o_carried text, o_stop boolean
) LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_indexonlyscan = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
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
  v_room bigint;
  v_wanted text[]; v_locked text[];
  v_woken_kinds text[]; v_woken_keys bytea[];
  v_alone boolean;
  v_parks boolean;
  v_did_park boolean := false;
  v_parked text[] := '{}'; v_left_out text[] := '{}';
  v_seen_kinds text[] := '{}'; v_seen_keys bytea[] := '{}';
  v_last_kind text; v_last_key bytea;
  a_tids tid[]; a_ids bigint[]; a_kinds text[]; a_keys bytea[]; a_claims bigint[]; a_ends bigint[];
  v_won bigint[]; v_lose tid[]; v_skip tid[]; v_lose_kinds text[]; v_skip_kinds text[];
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
      WITH back AS (
        UPDATE "own"."fastjobs_jobs" j SET state = 0, held_until = 0, lost = j.lost + 1 WHERE j.id = ANY (v_ids)
        RETURNING j.kind, j.alone_key
      )
      SELECT array_agg(b.kind), array_agg(b.alone_key) INTO v_woken_kinds, v_woken_keys
      FROM back b WHERE b.alone_key IS NOT NULL;
      IF v_woken_kinds IS NOT NULL THEN
        PERFORM "own"."fastjobs_promote_1"(v_woken_kinds, v_woken_keys);
        v_woken_kinds := NULL;
        v_woken_keys := NULL;
      END IF;
      v_again := (cardinality(v_ids) >= 1000)::integer;
    END IF;
  END IF;

  IF v_left > 0 AND v_kinds IS NOT NULL AND array_remove(p_at_once, NULL) <> '{}' THEN
    v_wanted := ARRAY(
      SELECT a.kind FROM unnest(v_kinds, v_terms) a(kind, term) WHERE p_at_once[a.term] IS NOT NULL
        AND (
          SELECT j.id FROM "own"."fastjobs_jobs" j WHERE j.kind = a.kind AND j.state = 0 AND j.run_at >= p_floors[a.term]
            AND j.run_at <= p_now ORDER BY j.run_at, j.id LIMIT 1) IS NOT NULL
        AND p_at_once[a.term] > (SELECT count(*) FROM "own"."fastjobs_jobs" j WHERE j.kind = a.kind AND j.state = 1 AND j.held_until > p_now - 5000000));
    v_locked := ARRAY(
      SELECT k.kind FROM "own"."fastjobs_kinds" k WHERE k.kind = ANY (v_wanted) AND k.held_until <= p_now AND k.paused = 0
      ORDER BY k.kind FOR UPDATE SKIP LOCKED);
    IF cardinality(v_locked) < cardinality(v_wanted) THEN
      -- Another claim has a kind's row: there may be places left once it has taken its own.
      v_again := 1;
    END IF;
    IF cardinality(v_locked) < cardinality(v_kinds) THEN
      SELECT array_agg(a.kind), array_agg(a.term) INTO v_kinds, v_terms FROM unnest(v_kinds, v_terms) a(kind, term)
      WHERE p_at_once[a.term] IS NULL OR a.kind = ANY (v_locked);
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
      IF v_round > 4 THEN
        v_left_out := v_left_out || v_parked;
        v_parked := '{}';
      END IF;
      IF v_left_out <> '{}' THEN
        SELECT array_agg(a.kind), array_agg(a.term) INTO v_some, v_some_terms
        FROM unnest(v_some, v_some_terms) a(kind, term) WHERE a.kind <> ALL (v_left_out);
        EXIT WHEN v_some IS NULL;
      END IF;
      v_parks := false;
      IF cardinality(v_some) > 1 THEN
        -- Most kinds have nothing due at a time, and what looks at several costs as much as all else here.
        SELECT array_agg(a.kind), array_agg(a.term) INTO v_some, v_some_terms
        FROM unnest(v_some, v_some_terms) a(kind, term)
        WHERE (
          SELECT j.id FROM "own"."fastjobs_jobs" j WHERE j.kind = a.kind AND j.state = 0 AND j.run_at >= p_floors[a.term]
            AND j.run_at <= p_now ORDER BY j.run_at, j.id LIMIT 1) IS NOT NULL;
        EXIT WHEN v_some IS NULL;
      END IF;
      -- Which jobs. Their locks are taken where it's known how many of each kind there are to be: SKIP LOCKED then
      -- passes over what another claim has, and takes the next.
      IF cardinality(v_some) = 1 THEN
        v_term := v_some_terms[1];
        v_room := NULL;
        IF p_at_once[v_term] IS NOT NULL THEN
          v_room := p_at_once[v_term] - (SELECT count(*) FROM "own"."fastjobs_jobs" j WHERE j.kind = v_some[1] AND j.state = 1 AND j.held_until > p_now - 5000000);
        END IF;
        SELECT array_agg(t.ctid), count(*) FILTER (WHERE t.lost > 0 OR NOT p_ahead_ok[v_term]),
          count(*) FILTER (WHERE t.attempts >= p_attempts[v_term]), bool_or(t.alone_key IS NOT NULL)
        INTO v_tids, v_used, v_out, v_alone
        FROM (
          SELECT j.ctid, j.lost, j.attempts, j.alone_key FROM "own"."fastjobs_jobs" j
          WHERE j.kind = v_some[1] AND j.state = 0 AND j.run_at >= p_floors[v_term] AND j.run_at <= p_now
            AND (v_free > 0 OR j.lost = 0 OR j.attempts >= p_attempts[v_term])
          ORDER BY j.run_at, j.id
          LIMIT greatest(
            least(v_left, v_rooms[v_term], v_room, CASE WHEN NOT p_ahead_ok[v_term] THEN v_free END), 0)
          FOR UPDATE SKIP LOCKED) t;
      ELSE
        WITH k AS MATERIALIZED (
          SELECT a.kind, a.term, p_floors[a.term] AS floor,
            greatest(least(v_left, v_rooms[a.term], CASE WHEN NOT p_ahead_ok[a.term] THEN v_free END,
              CASE WHEN p_at_once[a.term] IS NOT NULL THEN p_at_once[a.term] - (SELECT count(*) FROM "own"."fastjobs_jobs" j WHERE j.kind = a.kind AND j.state = 1 AND j.held_until > p_now - 5000000) END), 0) AS room
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
          SELECT p.ctid, p.lost, p.attempts, p.alone_key, k.term FROM quota k CROSS JOIN LATERAL (
            SELECT j.ctid, j.lost, j.attempts, j.alone_key FROM "own"."fastjobs_jobs" j
            WHERE j.kind = k.kind AND j.state = 0 AND j.run_at >= p_floors[k.term] AND j.run_at <= p_now
              AND (v_free > 0 OR j.lost = 0 OR j.attempts >= p_attempts[k.term])
            ORDER BY j.run_at, j.id LIMIT k.most FOR UPDATE SKIP LOCKED) p
        )
        SELECT array_agg(p.ctid), count(*) FILTER (WHERE p.lost > 0 OR NOT p_ahead_ok[p.term]),
          count(*) FILTER (WHERE p.attempts >= p_attempts[p.term]), bool_or(p.alone_key IS NOT NULL)
        INTO v_tids, v_used, v_out, v_alone
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
        IF v_alone THEN
          -- One that was woken to run next of its key won't.
          SELECT v_woken_kinds || array_agg(j.kind), v_woken_keys || array_agg(j.alone_key)
          INTO v_woken_kinds, v_woken_keys FROM "own"."fastjobs_jobs" j
          WHERE j.ctid = ANY (v_spent) AND j.alone_key IS NOT NULL ;
        END IF;
        RETURN QUERY SELECT 1, j.id, j.kind, j.payload, j.run_at, j.attempts, j.claim, j.lost, j.error, j.carried, j.stop_asked <> 0 FROM "own"."fastjobs_jobs" j WHERE j.ctid = ANY (v_spent);
        UPDATE "own"."fastjobs_jobs" j SET state = 3, held_until = 0, claim = j.claim + 1, unique_key = NULL, failed_at = p_now,
          error = "own"."fastjobs_exhausted_1"(
            j.attempts, j.lost, j.error, p_attempts[coalesce(array_position(p_kinds, j.kind), v_last)])
        WHERE j.ctid = ANY (v_spent);
      END IF;

      IF v_alone AND v_tids IS NOT NULL THEN
        -- Of a key that this claim has met already, either it has a job or someone else does. All other slots are
        -- taken in one order through all rounds, or two claims could wait for each other: what comes too late for
        -- that is for the next claim.
        SELECT array_agg(o.ctid) FILTER (WHERE o.fate = 0), array_agg(o.id) FILTER (WHERE o.fate = 0),
          array_agg(o.kind) FILTER (WHERE o.fate = 0), array_agg(o.alone_key) FILTER (WHERE o.fate = 0),
          array_agg(o.claim + 1) FILTER (WHERE o.fate = 0),
          array_agg(p_now + p_holds[o.term]) FILTER (WHERE o.fate = 0),
          array_agg(o.ctid) FILTER (WHERE o.fate = 1), array_agg(DISTINCT o.kind) FILTER (WHERE o.fate = 1),
          array_agg(o.ctid) FILTER (WHERE o.fate = 2), array_agg(DISTINCT o.kind) FILTER (WHERE o.fate = 2)
        INTO a_tids, a_ids, a_kinds, a_keys, a_claims, a_ends, v_lose, v_lose_kinds, v_skip, v_skip_kinds
        FROM (
          SELECT j.ctid, j.id, j.kind, j.alone_key, j.claim,
            coalesce(array_position(p_kinds, j.kind), v_last) AS term,
            CASE
              WHEN (j.kind, j.alone_key) IN (SELECT s.kind, s.key FROM unnest(v_seen_kinds, v_seen_keys) s(kind, key))
                THEN 1
              WHEN (j.kind, j.alone_key) < (v_last_kind, v_last_key) THEN 2
              ELSE 0
            END AS fate
          FROM "own"."fastjobs_jobs" j WHERE j.ctid = ANY (v_tids) AND j.alone_key IS NOT NULL ORDER BY j.run_at, j.id) o;
        IF a_ids IS NOT NULL THEN
          WITH taken AS (
            INSERT INTO "own"."fastjobs_slots" AS s (kind, alone_key, job_id, claim, held_until)
            SELECT f.kind, f.key, f.id, f.claim, f.ends FROM (
              SELECT DISTINCT ON (u.kind COLLATE "C", u.key) u.kind, u.key, u.id, u.claim, u.ends
              FROM unnest(a_ids, a_kinds, a_keys, a_claims, a_ends) WITH ORDINALITY u(id, kind, key, claim, ends, nth)
              ORDER BY u.kind COLLATE "C", u.key, u.nth) f
            ON CONFLICT (kind, alone_key) DO UPDATE
            SET job_id = excluded.job_id, claim = excluded.claim, held_until = excluded.held_until
            WHERE s.held_until <= p_now
            RETURNING s.job_id
          )
          SELECT coalesce(array_agg(t.job_id), '{}') INTO v_won FROM taken t;
          IF cardinality(v_won) < cardinality(a_ids) THEN
            -- The rows of the others are locked now too, and what a new statement sees of their jobs is the truth: a
            -- slot whose job has ended in a transaction of the app's is nobody's.
            WITH taken AS (
              UPDATE "own"."fastjobs_slots" s SET job_id = f.id, claim = f.claim, held_until = f.ends
              FROM (
                SELECT DISTINCT ON (u.kind COLLATE "C", u.key) u.kind, u.key, u.id, u.claim, u.ends
                FROM unnest(a_ids, a_kinds, a_keys, a_claims, a_ends) WITH ORDINALITY u(id, kind, key, claim, ends, nth)
                ORDER BY u.kind COLLATE "C", u.key, u.nth) f
              WHERE s.kind = f.kind AND s.alone_key = f.key AND s.job_id <> f.id AND (
                SELECT h.id FROM "own"."fastjobs_jobs" h WHERE h.id = s.job_id AND h.claim = s.claim AND h.state + 0 = 1 LIMIT 1
              ) IS NULL
              RETURNING s.job_id
            )
            SELECT v_won || array_agg(t.job_id) INTO v_won FROM taken t;
            SELECT v_lose || array_agg(u.tid), v_lose_kinds || array_agg(DISTINCT u.kind) INTO v_lose, v_lose_kinds
            FROM unnest(a_tids, a_ids, a_kinds) u(tid, id, kind) WHERE u.id <> ALL (v_won);
          END IF;
          v_seen_kinds := v_seen_kinds || a_kinds;
          v_seen_keys := v_seen_keys || a_keys;
          SELECT u.kind, u.key INTO v_last_kind, v_last_key FROM unnest(a_kinds, a_keys) u(kind, key)
          ORDER BY u.kind COLLATE "C" DESC, u.key DESC LIMIT 1;
        END IF;
        IF v_lose IS NOT NULL OR v_skip IS NOT NULL THEN
          v_parks := true;
          IF v_lose IS NOT NULL THEN
            UPDATE "own"."fastjobs_jobs" j SET state = 2 WHERE j.ctid = ANY (v_lose);
            v_parked := v_parked || v_lose_kinds;
          END IF;
          IF v_skip IS NOT NULL THEN
            v_left_out := v_left_out || v_skip_kinds;
          END IF;
          v_did_park := true;
          v_tids := ARRAY(
            SELECT t.tid FROM unnest(v_tids) t(tid) EXCEPT SELECT t.tid FROM unnest(v_lose || v_skip) t(tid));
          IF cardinality(v_tids) = 0 THEN
            v_tids := NULL;
          ELSE
            SELECT count(*) INTO v_used FROM "own"."fastjobs_jobs" j WHERE j.ctid = ANY (v_tids)
              AND (j.lost > 0 OR NOT p_ahead_ok[coalesce(array_position(p_kinds, j.kind), v_last)]);
          END IF;
        END IF;
      END IF;

      IF v_tids IS NOT NULL THEN
        IF v_out >= 0 OR v_parks THEN
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
          unique_key = NULL
        WHERE j.ctid = ANY (v_tids)
        RETURNING 0, j.id, j.kind, j.payload, j.run_at, j.attempts, j.claim, j.lost, j.error, j.carried, j.stop_asked <> 0;
        v_left := v_left - cardinality(v_tids);
        v_room := v_room - cardinality(v_tids);
        v_free := v_free - v_used;
      END IF;
      EXIT WHEN v_out < 0 AND NOT v_parks;
      IF v_parks AND v_lose_kinds IS NOT NULL AND v_left > 0 THEN
        -- Those that stand behind with the same keys, or there would be a round for each few of them.
        v_lose := ARRAY(
          SELECT h.ctid FROM unnest(v_lose_kinds) k(kind) CROSS JOIN LATERAL (
            SELECT j.ctid, j.kind, j.alone_key FROM "own"."fastjobs_jobs" j WHERE j.kind = k.kind AND j.state = 0
              AND j.run_at >= p_floors[coalesce(array_position(p_kinds, k.kind), v_last)] AND j.run_at <= p_now
            ORDER BY j.run_at, j.id LIMIT 100) h
          WHERE (h.kind, h.alone_key) IN (SELECT s.kind, s.key FROM unnest(v_seen_kinds, v_seen_keys) s(kind, key)));
        v_lose := ARRAY(
          -- Not the state itself, or an index of all that wait would do, too.
          SELECT j.ctid FROM "own"."fastjobs_jobs" j WHERE j.ctid = ANY (v_lose) AND j.state + 0 = 0 FOR UPDATE SKIP LOCKED);
        UPDATE "own"."fastjobs_jobs" j SET state = 2 WHERE j.ctid = ANY (v_lose);
      END IF;
    END LOOP;
  END LOOP;

  IF v_woken_kinds IS NOT NULL THEN
    PERFORM "own"."fastjobs_promote_1"(v_woken_kinds, v_woken_keys);
    v_again := 1;
  END IF;
  IF v_left > 0 THEN
    IF v_did_park THEN
      v_again := 1;
    END IF;
    IF cardinality(v_asked) > 1 OR v_room IS NULL OR v_room > 0 THEN
      -- Not of one kind whose last place was taken here: it has no next.
      SELECT min(greatest(f.run_at, k.held_until)) INTO v_next
      FROM unnest(v_asked) a(kind) LEFT JOIN "own"."fastjobs_kinds" k ON k.kind = a.kind
      CROSS JOIN LATERAL (
        SELECT j.run_at FROM "own"."fastjobs_jobs" j WHERE j.kind = a.kind AND j.state = 0
          AND j.run_at >= p_floors[coalesce(array_position(p_kinds, a.kind), v_last)]
        ORDER BY j.run_at, j.id LIMIT 1) f
      WHERE (k.paused IS NULL OR k.paused = 0) AND CASE
        WHEN p_at_once[coalesce(array_position(p_kinds, a.kind), v_last)] IS NULL THEN true
        ELSE p_at_once[coalesce(array_position(p_kinds, a.kind), v_last)] > (SELECT count(*) FROM "own"."fastjobs_jobs" j WHERE j.kind = a.kind AND j.state = 1 AND j.held_until > p_now - 5000000) END;
    END IF;
  END IF;
  o_what := 2;
  o_id := v_next;
  o_attempts := pg_stat_get_xact_tuples_returned('"own"."fastjobs_jobs_ready"'::regclass) - pg_stat_get_xact_tuples_fetched('"own"."fastjobs_jobs_ready"'::regclass) + pg_stat_get_xact_tuples_returned('"own"."fastjobs_jobs_held"'::regclass) - pg_stat_get_xact_tuples_fetched('"own"."fastjobs_jobs_held"'::regclass) - v_met;
  o_lost := v_again;
  RETURN NEXT;
END $$;

CREATE FUNCTION "own"."fastjobs_mark_1"(
  p_done bigint[], p_done_claims bigint[],
  p_ids bigint[], p_claims bigint[], p_what integer[], p_at bigint[], p_errors text[], p_kinds_until bigint[],
  p_now bigint
) RETURNS TABLE (o_missed bigint[], o_busy bigint[], o_stop bigint[], o_woke boolean, o_slots boolean)
LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_got bigint[]; v_had bigint[]; v_tids tid[]; v_done tid[];
  v_what integer[]; v_at bigint[]; v_errors text[];
  v_missed bigint[];
  v_keyed boolean; v_alone boolean; v_back boolean;
  v_kinds text[]; v_keys bytea[]; v_names text[]; v_keeps bigint[];
  v_lock_timeout text; v_waited boolean := false; v_id bigint;
BEGIN
  o_woke := false;
  -- What someone else's transaction has locked is passed over, and looked at once more: it's that claim's still, or
  -- another's by now. No job is ever waited for.
  IF cardinality(p_done) > 0 THEN
    SELECT array_agg(l.id), array_agg(l.ctid), bool_or(l.alone_key IS NOT NULL OR l.keep_name > 0)
    INTO v_got, v_done, v_keyed
    FROM unnest(p_done, p_done_claims) u(id, claim) CROSS JOIN LATERAL (
      SELECT j.id, j.ctid, j.alone_key, j.keep_name FROM "own"."fastjobs_jobs" j WHERE j.id = u.id AND j.claim = u.claim AND j.state <> 3 FOR UPDATE SKIP LOCKED) l;
    IF cardinality(v_got) IS DISTINCT FROM cardinality(p_done) THEN
      o_missed := ARRAY(SELECT u.id FROM unnest(p_done) u(id) EXCEPT SELECT g.id FROM unnest(v_got) g(id));
      o_busy := ARRAY(
        SELECT u.id FROM unnest(p_done, p_done_claims) u(id, claim)
        CROSS JOIN LATERAL (SELECT 1 FROM "own"."fastjobs_jobs" j WHERE j.id = u.id AND j.claim = u.claim AND j.state <> 3 LIMIT 1) l WHERE u.id = ANY (o_missed));
    END IF;
    v_got := NULL;
  END IF;
  IF cardinality(p_ids) > 0 THEN
    SELECT array_agg(l.id), array_agg(l.ctid), array_agg(u.what), array_agg(u.at), array_agg(u.error),
      bool_or(l.alone_key IS NOT NULL),
      bool_or(u.what IN (3, 5) AND l.own_key IS NOT NULL AND l.unique_key IS NULL AND l.stop_asked = 0)
    INTO v_got, v_tids, v_what, v_at, v_errors, v_alone, v_back
    FROM unnest(p_ids, p_claims, p_what, p_at, p_errors) u(id, claim, what, at, error) CROSS JOIN LATERAL (
      SELECT j.id, j.ctid, j.alone_key, j.own_key, j.unique_key, j.stop_asked FROM "own"."fastjobs_jobs" j
      WHERE j.id = u.id AND j.claim = u.claim AND j.state <> 3 AND (u.what <> 4 OR (j.state = 1 AND j.held_until > p_now)) FOR UPDATE SKIP LOCKED) l;
    v_had := v_got;
    IF v_tids IS NOT NULL AND 5 = ANY (v_what) THEN
      INSERT INTO "own"."fastjobs_kinds" AS k (kind, held_until, first_seen)
      SELECT j.kind, max(u.until), p_now FROM unnest(p_ids, p_what, p_kinds_until) u(id, what, until)
      CROSS JOIN LATERAL (SELECT o.kind FROM "own"."fastjobs_jobs" o WHERE o.id = u.id LIMIT 1) j
      WHERE u.what = 5 AND u.id = ANY (v_got) GROUP BY j.kind ORDER BY j.kind COLLATE "C"
      ON CONFLICT (kind) DO UPDATE SET held_until = greatest(k.held_until, excluded.held_until);
    END IF;
  END IF;

  o_slots := coalesce(v_keyed, false) OR coalesce(v_alone, false);
  IF o_slots THEN
    -- The slots, in the order that claims take them. Who has one is asked in the statements after it.
    PERFORM 1 FROM (
      SELECT j.kind, j.alone_key FROM "own"."fastjobs_jobs" j
      WHERE j.ctid = ANY (v_done || v_tids) AND j.alone_key IS NOT NULL
    ) a JOIN "own"."fastjobs_slots" s ON s.kind = a.kind AND s.alone_key = a.alone_key
    ORDER BY s.kind, s.alone_key FOR UPDATE OF s;
    IF v_alone AND 4 = ANY (v_what) THEN
      WITH longer AS (
        UPDATE "own"."fastjobs_slots" s SET held_until = e.at FROM (
          SELECT j.id, j.kind, j.alone_key, j.claim, u.at FROM unnest(v_tids, v_what, v_at) u(tid, what, at)
          CROSS JOIN LATERAL (SELECT o.id, o.kind, o.alone_key, o.claim FROM "own"."fastjobs_jobs" o WHERE o.ctid = u.tid LIMIT 1) j
          WHERE u.what = 4 AND j.alone_key IS NOT NULL) e
        WHERE s.kind = e.kind AND s.alone_key = e.alone_key AND s.job_id = e.id AND s.claim = e.claim
        RETURNING s.job_id
      )
      -- One whose slot another has by now, as by that one's clock its hold was over, has no more of it.
      SELECT array_agg(u.id), array_agg(u.tid), array_agg(u.what), array_agg(u.at), array_agg(u.error)
      INTO v_got, v_tids, v_what, v_at, v_errors
      FROM unnest(v_got, v_tids, v_what, v_at, v_errors) u(id, tid, what, at, error)
      CROSS JOIN LATERAL (SELECT o.alone_key FROM "own"."fastjobs_jobs" o WHERE o.ctid = u.tid LIMIT 1) j
      WHERE u.what <> 4 OR j.alone_key IS NULL OR u.id IN (SELECT l.job_id FROM longer l);
    END IF;
    WITH freed AS (
      SELECT j.id, j.kind, j.alone_key, j.claim FROM "own"."fastjobs_jobs" j WHERE j.ctid = ANY (v_done) AND j.alone_key IS NOT NULL
      UNION ALL
      SELECT j.id, j.kind, j.alone_key, j.claim FROM unnest(v_tids, v_what) u(tid, what)
      CROSS JOIN LATERAL (SELECT o.id, o.kind, o.alone_key, o.claim FROM "own"."fastjobs_jobs" o WHERE o.ctid = u.tid LIMIT 1) j
      WHERE u.what <> 4 AND j.alone_key IS NOT NULL
    ), gone AS (
      DELETE FROM "own"."fastjobs_slots" s USING freed f
      WHERE s.kind = f.kind AND s.alone_key = f.alone_key AND s.job_id = f.id AND s.claim = f.claim
    )
    SELECT array_agg(f.kind), array_agg(f.alone_key) INTO v_kinds, v_keys FROM freed f;
  END IF;

  IF v_keyed THEN
    WITH gone AS (DELETE FROM "own"."fastjobs_jobs" j WHERE j.ctid = ANY (v_done) RETURNING j.name, j.keep_name)
    SELECT array_agg(g.name), array_agg(g.keep_name) INTO v_names, v_keeps FROM gone g WHERE g.keep_name > 0;
    IF v_names IS NOT NULL THEN
      PERFORM "own"."fastjobs_keep_names_1"(v_names, v_keeps, p_now);
    END IF;
  ELSIF v_done IS NOT NULL THEN
    DELETE FROM "own"."fastjobs_jobs" j WHERE j.ctid = ANY (v_done);
  END IF;
  IF cardinality(p_ids) > 0 THEN
    WITH changed AS (
      UPDATE "own"."fastjobs_jobs" j SET
        state = CASE u.what WHEN 4 THEN j.state WHEN 2 THEN 3 ELSE 0 END,
        held_until = CASE u.what WHEN 4 THEN u.at ELSE 0 END,
        claim = CASE u.what WHEN 4 THEN j.claim ELSE j.claim + 1 END,
        attempts = CASE WHEN u.what IN (3, 5) THEN greatest(j.attempts - 1, 0) ELSE j.attempts END,
        run_at = CASE WHEN u.what IN (1, 3, 5) AND j.stop_asked = 0 THEN coalesce(u.at, j.run_at) ELSE j.run_at END,
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
        WHERE u.id = ANY (v_missed) AND u.id <> ALL (coalesce(v_had, '{}')));
    END IF;
  END IF;
  IF v_back THEN
    -- Their keys, unless others have them; that of one that was cancelled is free.
    -- Who waits is the app's open transaction, which may take its time.
    v_lock_timeout := current_setting('lock_timeout');
    PERFORM set_config('lock_timeout', '100', true);
    FOR v_id IN
      SELECT j.id FROM unnest(v_got, v_what) u(id, what) CROSS JOIN LATERAL (
        SELECT o.id, o.kind, o.own_key FROM "own"."fastjobs_jobs" o
        WHERE o.id = u.id AND o.own_key IS NOT NULL AND o.unique_key IS NULL AND o.stop_asked = 0 LIMIT 1) j
      WHERE u.what IN (3, 5) ORDER BY j.kind, j.own_key
    LOOP
      BEGIN
        UPDATE "own"."fastjobs_jobs" j SET unique_key = j.own_key WHERE j.id = v_id;
      EXCEPTION
        WHEN unique_violation THEN
          NULL;
        WHEN lock_not_available THEN
          IF NOT v_waited THEN
            v_waited := true;
            PERFORM set_config('lock_timeout', '1', true);
          END IF;
      END;
    END LOOP;
    PERFORM set_config('lock_timeout', v_lock_timeout, true);
  END IF;
  IF v_kinds IS NOT NULL THEN
    -- In a statement of its own, which sees who parked until the slot was had.
    o_woke := "own"."fastjobs_promote_1"(v_kinds, v_keys) > 0;
  END IF;
  RETURN NEXT;
END $$;

CREATE FUNCTION "own"."fastjobs_push_1"(
  p_kinds text[], p_payloads text[], p_run_ats bigint[], p_carried text[], p_keys text[], p_latest boolean[],
  p_at_mosts bigint[], p_alone boolean[], p_names text[], p_keeps bigint[], p_now bigint, p_wait integer,
  p_channel text
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_ids bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_kinds)]);
  v_named boolean := EXISTS (SELECT 1 FROM unnest(p_names) n WHERE n IS NOT NULL);
  v_had bigint[];
  v_id bigint; v_until bigint; v_run_at bigint;
  v_found record; r record;
  v_kinds text[]; v_keys bytea[];
  v_new integer[] := '{}';
BEGIN
  IF p_wait IS NOT NULL THEN
    PERFORM set_config('lock_timeout', p_wait::text, true);
  END IF;
  FOR r IN
    SELECT u.nth, u.kind, u.payload, u.run_at, u.carried, decode(u.key, 'hex') AS key, u.latest, u.at_most, u.alone,
      u.name, u.keep
    FROM unnest(
      p_kinds, p_payloads, p_run_ats, p_carried, p_keys, p_latest, p_at_mosts, p_alone, p_names, p_keeps
    ) WITH ORDINALITY u(kind, payload, run_at, carried, key, latest, at_most, alone, name, keep, nth)
    ORDER BY CASE WHEN v_named THEN u.nth END, u.kind COLLATE "C", u.key, u.nth
  LOOP
    CONTINUE WHEN r.name IS NOT NULL AND (
      EXISTS (SELECT 1 FROM "own"."fastjobs_names" n WHERE n.name = r.name AND n.until + 0 > p_now)
      OR EXISTS (SELECT 1 FROM "own"."fastjobs_jobs" j WHERE j.name = r.name));
    LOOP
      INSERT INTO "own"."fastjobs_jobs" (
        kind, payload, run_at, created_at, carried, own_key, unique_key, alone_key, name, keep_name)
      VALUES (
        r.kind, r.payload, r.run_at, p_now, r.carried, r.key, r.key, CASE WHEN r.alone THEN r.key END,
        r.name, CASE WHEN r.name IS NOT NULL THEN r.keep END)
      ON CONFLICT DO NOTHING RETURNING id INTO v_id;
      IF v_id IS NOT NULL THEN
        IF r.name IS NOT NULL THEN
          -- Looked at again: the job that had it may have ended since the statement of before. What has its name
          -- now is this job alone, so nobody else writes that row until this transaction ends.
          IF current_setting('transaction_isolation') = 'read committed' THEN
            SELECT n.until INTO v_until FROM "own"."fastjobs_names" n WHERE n.name = r.name AND n.until + 0 > p_now;
          ELSE
            -- A plain read wouldn't see what came after the transaction's first statement. This fails there.
            INSERT INTO "own"."fastjobs_names" AS n (name, until) VALUES (r.name, p_now)
            ON CONFLICT (name) DO UPDATE SET until = n.until RETURNING n.until INTO v_until;
          END IF;
          IF v_until > p_now THEN
            DELETE FROM "own"."fastjobs_jobs" j WHERE j.id = v_id;
            v_id := NULL;
          END IF;
          v_until := NULL;
        END IF;
        IF v_id IS NOT NULL THEN
          v_new := v_new || r.nth::integer;
        END IF;
        EXIT;
      END IF;
      EXIT WHEN NOT r.latest;
      EXIT WHEN r.name IS NOT NULL AND EXISTS (SELECT 1 FROM "own"."fastjobs_jobs" j WHERE j.name = r.name);
      SELECT j.id, j.state, j.run_at, coalesce(j.first_push_at, j.created_at) AS first, j.alone_key INTO v_found
      FROM "own"."fastjobs_jobs" j WHERE j.kind = r.kind AND j.unique_key = r.key FOR UPDATE;
      IF FOUND THEN
        IF r.name IS NOT NULL THEN
          -- Nothing is pushed, so the name stays free; but one that's taken is to leave the job as it is.
          SELECT n.until INTO v_until FROM "own"."fastjobs_names" n WHERE n.name = r.name AND n.until + 0 > p_now;
          EXIT WHEN FOUND;
        END IF;
        v_id := v_found.id;
        v_run_at := least(r.run_at, v_found.first + r.at_most);
        IF v_run_at <> v_found.run_at THEN
          -- Otherwise one value a thousand times in a call would be a thousand versions of its row.
          UPDATE "own"."fastjobs_jobs" j SET run_at = v_run_at WHERE j.id = v_id;
        END IF;
        IF v_found.state = 0 AND v_found.alone_key IS NOT NULL AND v_run_at > v_found.run_at THEN
          -- It was to run, and its end to wake the next of its key.
          v_kinds := v_kinds || r.kind;
          v_keys := v_keys || v_found.alone_key;
        END IF;
        EXIT;
      END IF;
      -- It was claimed meanwhile.
    END LOOP;
    v_ids[r.nth] := v_id;
  END LOOP;
  IF EXISTS (SELECT 1 FROM (SELECT u.nth, lag(u.nth) OVER (ORDER BY u.n) AS last FROM unnest(v_new) WITH ORDINALITY
      u(nth, n)) u WHERE u.nth < u.last) THEN
    -- Jobs that are due at once are claimed by their ids, so these get theirs in the order that they were given in.
    v_had := v_ids;
    FOR r IN SELECT u.nth FROM unnest(v_new) u(nth) ORDER BY u.nth LOOP
      UPDATE "own"."fastjobs_jobs" j SET id = DEFAULT WHERE j.id = v_ids[r.nth] RETURNING j.id INTO v_id;
      v_ids[r.nth] := v_id;
    END LOOP;
    -- Latest pushes later in the call have answered the id that it had: the new one is the greater of the two.
    v_ids := ARRAY(
      SELECT u.id FROM (SELECT u.nth, max(u.id) OVER (PARTITION BY u.had) AS id
        FROM unnest(v_had, v_ids) WITH ORDINALITY u(had, id, nth)) u ORDER BY u.nth);
  END IF;
  IF v_kinds IS NOT NULL THEN
    PERFORM "own"."fastjobs_promote_1"(v_kinds, v_keys);
  END IF;
  IF p_channel IS NOT NULL AND array_remove(v_ids, NULL) <> '{}' THEN
    PERFORM pg_notify(p_channel, '');
  END IF;
  RETURN v_ids;
END $$;

CREATE FUNCTION "own"."fastjobs_done_in_1"(p_id bigint, p_claim bigint, p_now bigint)
RETURNS TABLE (o_done boolean, o_kind text, o_key bytea) LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_gone record;
BEGIN
  DELETE FROM "own"."fastjobs_jobs" j WHERE j.id = p_id AND j.claim = p_claim AND j.state <> 3
  RETURNING j.kind, j.alone_key, j.name, j.keep_name INTO v_gone;
  o_done := FOUND;
  IF o_done THEN
    o_kind := v_gone.kind;
    o_key := v_gone.alone_key;
    IF v_gone.keep_name > 0 THEN
      PERFORM "own"."fastjobs_keep_names_1"(ARRAY[v_gone.name], ARRAY[v_gone.keep_name], p_now);
    END IF;
    IF o_key IS NOT NULL THEN
      PERFORM "own"."fastjobs_promote_1"(ARRAY[o_kind], ARRAY[o_key]);
    END IF;
  END IF;
  RETURN NEXT;
END $$;

CREATE FUNCTION "own"."fastjobs_sweep_1"(p_now bigint) RETURNS integer LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_kinds text[]; v_keys bytea[];
BEGIN
  WITH RECURSIVE w(kind, key) AS (
    (SELECT j.kind, j.alone_key FROM "own"."fastjobs_jobs" j WHERE j.state = 2 ORDER BY j.kind, j.alone_key LIMIT 1)
    UNION ALL
    SELECT n.kind, n.alone_key FROM w CROSS JOIN LATERAL (
      SELECT j.kind, j.alone_key FROM "own"."fastjobs_jobs" j WHERE j.state = 2 AND (j.kind, j.alone_key) > (w.kind, w.key)
      ORDER BY j.kind, j.alone_key LIMIT 1) n
  )
  SELECT array_agg(w.kind), array_agg(w.key) INTO v_kinds, v_keys FROM w
  WHERE (
    SELECT (SELECT h.id FROM "own"."fastjobs_jobs" h WHERE h.id = s.job_id AND h.claim = s.claim AND h.state + 0 = 1 LIMIT 1)
    FROM "own"."fastjobs_slots" s
    WHERE s.kind = w.kind AND s.alone_key = w.key AND s.held_until > p_now LIMIT 1) IS NULL;
  RETURN CASE WHEN v_kinds IS NULL THEN 0 ELSE "own"."fastjobs_promote_1"(v_kinds, v_keys) END;
END $$;

CREATE FUNCTION "own"."fastjobs_prune_1"(p_failed_before bigint, p_limit integer, p_now bigint)
RETURNS integer LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_left integer := greatest(p_limit, 0);
  v_tids tid[];
  v_names text[]; v_keeps bigint[];
BEGIN
  SELECT array_agg(t.ctid), array_agg(t.name) FILTER (WHERE t.keep_name > 0),
    array_agg(t.keep_name) FILTER (WHERE t.keep_name > 0) INTO v_tids, v_names, v_keeps
  FROM (
    SELECT j.ctid, j.name, j.keep_name FROM "own"."fastjobs_jobs" j WHERE j.state = 3 AND j.failed_at < p_failed_before
    ORDER BY j.failed_at, j.id LIMIT v_left FOR UPDATE SKIP LOCKED) t;
  IF v_tids IS NOT NULL THEN
    DELETE FROM "own"."fastjobs_jobs" j WHERE j.ctid = ANY (v_tids);
    v_left := v_left - cardinality(v_tids);
    IF v_names IS NOT NULL THEN
      PERFORM "own"."fastjobs_keep_names_1"(v_names, v_keeps, p_now);
    END IF;
  END IF;
  v_tids := ARRAY(
    SELECT n.ctid FROM "own"."fastjobs_names" n WHERE n.until <= p_now ORDER BY n.until LIMIT v_left FOR UPDATE SKIP LOCKED);
  IF cardinality(v_tids) > 0 THEN
    DELETE FROM "own"."fastjobs_names" n WHERE n.ctid = ANY (v_tids);
    v_left := v_left - cardinality(v_tids);
  END IF;
  v_tids := ARRAY(SELECT s.ctid FROM "own"."fastjobs_slots" s WHERE s.held_until <= p_now LIMIT v_left FOR UPDATE SKIP LOCKED);
  IF cardinality(v_tids) > 0 THEN
    DELETE FROM "own"."fastjobs_slots" s WHERE s.ctid = ANY (v_tids);
    v_left := v_left - cardinality(v_tids);
  END IF;
  v_tids := ARRAY(
    SELECT t.ctid FROM "own"."fastjobs_throttles" t WHERE t.free_at <= p_now ORDER BY t.free_at LIMIT v_left
    FOR UPDATE SKIP LOCKED);
  IF cardinality(v_tids) > 0 THEN
    DELETE FROM "own"."fastjobs_throttles" t WHERE t.ctid = ANY (v_tids);
    v_left := v_left - cardinality(v_tids);
  END IF;
  RETURN greatest(p_limit, 0) - v_left;
END $$;

CREATE FUNCTION "own"."fastjobs_take_1"(
  p_names text[], p_keys text[], p_most integer[], p_per bigint[], p_wanted integer[], p_now bigint
) RETURNS TABLE (o_slots integer[], o_wait bigint) LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_at bigint := p_now + 10000000;
  v_live integer[]; v_ats bigint[];
  v_room integer;
  r record;
BEGIN
  -- In order, so that no two wait for each other.
  PERFORM pg_advisory_xact_lock('"own"."fastjobs_throttles"'::regclass::oid::bigint::bit(32)::integer, l.hash) FROM (
    SELECT DISTINCT hashtext(u.name || ' ' || u.key) AS hash FROM unnest(p_names, p_keys) u(name, key) ORDER BY 1
  ) l;
  FOR r IN
    SELECT u.* FROM unnest(p_names, p_keys, p_most, p_per, p_wanted) WITH ORDINALITY
      u(name, key, most, per, wanted, nth) ORDER BY u.nth
  LOOP
    o_slots := '{}';
    o_wait := 0;
    SELECT coalesce(array_agg(t.slot), '{}'), coalesce(array_agg(least(t.at, p_now)), '{}') INTO v_live, v_ats
    FROM "own"."fastjobs_throttles" t WHERE t.name = r.name AND t.key = r.key AND t.at + r.per > p_now;
    -- Also those of slots that a throttle of fewer places no longer has.
    v_room := greatest(least(r.wanted, r.most - cardinality(v_live)), 0);
    IF v_room > 0 THEN
      o_slots := ARRAY(
        SELECT f.slot FROM (
          SELECT s.slot FROM generate_series(0, r.most - 1) s(slot) EXCEPT SELECT l.slot FROM unnest(v_live) l(slot)
        ) f ORDER BY f.slot LIMIT v_room);
      INSERT INTO "own"."fastjobs_throttles" (name, key, slot, at, free_at)
      SELECT r.name, r.key, s.slot, v_at, v_at + r.per FROM unnest(o_slots) s(slot)
      ON CONFLICT (name, key, slot) DO UPDATE SET at = excluded.at, free_at = excluded.free_at;
    END IF;
    IF v_room < r.wanted THEN
      -- As many as are too many for one more are to be over: what was taken just now comes last. A place that isn't
      -- settled yet may turn out to be of a start that is now.
      v_ats := v_ats || array_fill(p_now, ARRAY[v_room]);
      IF r.most > 0 THEN
        SELECT greatest(a.at + r.per - p_now, 0) INTO o_wait FROM unnest(v_ats) a(at)
        ORDER BY a.at OFFSET greatest(cardinality(v_ats) - r.most, 0) LIMIT 1;
        o_wait := coalesce(o_wait, 0);
      ELSE
        o_wait := r.per;
      END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

CREATE FUNCTION "own"."fastjobs_settle_1"(
  p_names text[], p_keys text[], p_slots integer[], p_untils bigint[], p_starts bigint[]
) RETURNS void LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
  PERFORM pg_advisory_xact_lock('"own"."fastjobs_throttles"'::regclass::oid::bigint::bit(32)::integer, l.hash) FROM (
    SELECT DISTINCT hashtext(u.name || ' ' || u.key) AS hash FROM unnest(p_names, p_keys) u(name, key) ORDER BY 1
  ) l;
  UPDATE "own"."fastjobs_throttles" t SET at = u.start, free_at = u.start + t.free_at - t.at
  FROM unnest(p_names, p_keys, p_slots, p_untils, p_starts) u(name, key, slot, until, start)
  WHERE t.name = u.name AND t.key = u.key AND t.slot = u.slot AND t.at = u.until AND u.start IS NOT NULL;
  DELETE FROM "own"."fastjobs_throttles" t USING unnest(p_names, p_keys, p_slots, p_untils, p_starts) u(name, key, slot, until, start)
  WHERE t.name = u.name AND t.key = u.key AND t.slot = u.slot AND t.at = u.until AND u.start IS NULL;
END $$;

CREATE FUNCTION "own"."fastjobs_cancel_1"(p_ids bigint[], p_now bigint)
RETURNS TABLE (o_removed bigint[], o_asked bigint[], o_busy bigint[], o_woke boolean) LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_got bigint[]; v_asked tid[]; v_gone tid[];
  v_alone boolean;
  v_kinds text[]; v_keys bytea[]; v_names text[]; v_keeps bigint[];
BEGIN
  o_woke := false;
  SELECT array_agg(l.id), array_agg(l.id) FILTER (WHERE l.is_held), array_agg(l.ctid) FILTER (WHERE l.is_held),
    array_agg(l.id) FILTER (WHERE NOT l.is_held), array_agg(l.ctid) FILTER (WHERE NOT l.is_held),
    bool_or(NOT l.is_held AND l.alone_key IS NOT NULL AND l.state <> 2)
  INTO v_got, o_asked, v_asked, o_removed, v_gone, v_alone
  FROM unnest(p_ids) u(id) CROSS JOIN LATERAL (
    SELECT j.id, j.ctid, j.alone_key, j.state, j.state = 1 AND j.held_until > p_now AS is_held
    FROM "own"."fastjobs_jobs" j WHERE j.id = u.id AND j.state <> 3 FOR UPDATE SKIP LOCKED) l;
  IF cardinality(v_got) IS DISTINCT FROM cardinality(p_ids) THEN
    o_busy := ARRAY(
      SELECT u.id FROM unnest(p_ids) u(id)
      CROSS JOIN LATERAL (SELECT 1 FROM "own"."fastjobs_jobs" j WHERE j.id = u.id AND j.state <> 3 LIMIT 1) l
      WHERE u.id <> ALL (coalesce(v_got, '{}')));
  END IF;
  IF v_asked IS NOT NULL THEN
    UPDATE "own"."fastjobs_jobs" j SET stop_asked = 1 WHERE j.ctid = ANY (v_asked) AND j.stop_asked = 0;
  END IF;
  IF v_gone IS NULL THEN
    RETURN NEXT;
    RETURN;
  END IF;
  IF v_alone THEN
    -- One that was parked frees nothing. One that waits may be the one that was to run next of its key, and one whose
    -- hold ran out has its key's slot still, unless another has taken it.
    SELECT array_agg(j.kind), array_agg(j.alone_key) INTO v_kinds, v_keys FROM "own"."fastjobs_jobs" j
    WHERE j.ctid = ANY (v_gone) AND j.alone_key IS NOT NULL AND j.state <> 2;
    PERFORM 1 FROM (SELECT DISTINCT u.kind, u.key FROM unnest(v_kinds, v_keys) u(kind, key)) a
    JOIN "own"."fastjobs_slots" s ON s.kind = a.kind AND s.alone_key = a.key
    ORDER BY s.kind, s.alone_key FOR UPDATE OF s;
    DELETE FROM "own"."fastjobs_slots" s USING "own"."fastjobs_jobs" j
    WHERE j.ctid = ANY (v_gone) AND s.kind = j.kind AND s.alone_key = j.alone_key AND s.job_id = j.id
      AND s.claim = j.claim;
  END IF;
  WITH gone AS (DELETE FROM "own"."fastjobs_jobs" j WHERE j.ctid = ANY (v_gone) RETURNING j.name, j.keep_name)
  SELECT array_agg(g.name), array_agg(g.keep_name) INTO v_names, v_keeps FROM gone g WHERE g.keep_name > 0;
  IF v_names IS NOT NULL THEN
    PERFORM "own"."fastjobs_keep_names_1"(v_names, v_keeps, p_now);
  END IF;
  IF v_kinds IS NOT NULL THEN
    -- In a statement of its own, which sees who parked until the slot was had.
    o_woke := "own"."fastjobs_promote_1"(v_kinds, v_keys) > 0;
  END IF;
  RETURN NEXT;
END $$;

CREATE FUNCTION "own"."fastjobs_progress_1"(p_ids bigint[], p_claims bigint[], p_texts text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
  SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_tids tid[]; v_texts text[];
BEGIN
  SELECT array_agg(l.ctid), array_agg(u.text) INTO v_tids, v_texts
  FROM unnest(p_ids, p_claims, p_texts) u(id, claim, text) CROSS JOIN LATERAL (
    SELECT j.ctid FROM "own"."fastjobs_jobs" j WHERE j.id = u.id AND j.claim = u.claim AND j.state <> 3 FOR UPDATE SKIP LOCKED) l;
  IF v_tids IS NOT NULL THEN
    UPDATE "own"."fastjobs_jobs" j SET progress = u.text FROM unnest(v_tids, v_texts) u(tid, text) WHERE j.ctid = u.tid;
  END IF;
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
WITH short AS MATERIALIZED (SELECT set_config('lock_timeout', '200ms', true)) INSERT INTO "own"."fastjobs_kinds" (kind, first_seen) SELECT DISTINCT u.kind, $2::bigint FROM unnest($1::text[]) AS u(kind) CROSS JOIN short ORDER BY u.kind ON CONFLICT DO NOTHING;

-- known_kinds
SELECT kind FROM "own"."fastjobs_kinds";

-- claim
SELECT * FROM "own"."fastjobs_claim_1"($1::text[], $2::bigint[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::boolean[], $8::bigint[], $9::boolean, $10::integer, $11::integer, $12::boolean, $13::bigint, $14::integer[]);

-- mark
SELECT * FROM "own"."fastjobs_mark_1"($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::integer[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint);

-- push_and_claim
WITH pushed AS (INSERT INTO "own"."fastjobs_jobs" (kind, payload, run_at, created_at, carried) VALUES ($1::text, $2::text, $3::bigint, $4::bigint, $5::text) RETURNING id), ids AS MATERIALIZED (SELECT array_agg(id) AS ids FROM pushed) SELECT 3, NULL::bigint, i.ids::text, NULL::text, NULL::bigint, NULL::integer, NULL::bigint, NULL::integer, NULL::text, NULL::text, NULL::boolean FROM ids i UNION ALL SELECT c.* FROM ids i CROSS JOIN LATERAL "own"."fastjobs_claim_1"($6::text[], $7::bigint[], $8::integer[], $9::integer[], $10::integer[], $11::integer[], $12::boolean[], $13::bigint[], $14::boolean, CASE WHEN i.ids IS NULL THEN 0 ELSE $15::integer END, $16::integer, $17::boolean, $18::bigint, $19::integer[]) c;

-- push_many_and_claim
WITH pushed AS (INSERT INTO "own"."fastjobs_jobs" (kind, payload, run_at, created_at, carried) SELECT u.kind, u.payload, u.run_at, $4::bigint, u.carried FROM unnest($1::text[], $2::text[], $3::bigint[], $5::text[]) WITH ORDINALITY AS u(kind, payload, run_at, carried, nth) ORDER BY u.nth RETURNING id), ids AS MATERIALIZED (SELECT array_agg(id ORDER BY id) AS ids FROM pushed) SELECT 3, NULL::bigint, i.ids::text, NULL::text, NULL::bigint, NULL::integer, NULL::bigint, NULL::integer, NULL::text, NULL::text, NULL::boolean FROM ids i UNION ALL SELECT c.* FROM ids i CROSS JOIN LATERAL "own"."fastjobs_claim_1"($6::text[], $7::bigint[], $8::integer[], $9::integer[], $10::integer[], $11::integer[], $12::boolean[], $13::bigint[], $14::boolean, CASE WHEN i.ids IS NULL THEN 0 ELSE $15::integer END, $16::integer, $17::boolean, $18::bigint, $19::integer[]) c;

-- mark_and_claim
WITH m AS MATERIALIZED (SELECT * FROM "own"."fastjobs_mark_1"($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::integer[], $6::bigint[], $7::text[], $8::bigint[], $9::bigint)) SELECT 3, NULL::bigint, m.o_missed::text, m.o_busy::text, NULL::bigint, m.o_woke::integer, NULL::bigint, m.o_slots::integer, m.o_stop::text, NULL::text, NULL::boolean FROM m UNION ALL SELECT c.* FROM m CROSS JOIN LATERAL "own"."fastjobs_claim_1"($10::text[], $11::bigint[], $12::integer[], $13::integer[], $14::integer[], $15::integer[], $16::boolean[], $17::bigint[], $18::boolean, CASE WHEN m.o_slots THEN 0 ELSE $19::integer END, $20::integer, $21::boolean, $22::bigint, $23::integer[]) c;

-- push_unique
WITH short AS MATERIALIZED (SELECT set_config('lock_timeout', $8::text, true)), pushed AS (INSERT INTO "own"."fastjobs_jobs" (kind, payload, run_at, created_at, carried, own_key, unique_key, alone_key) SELECT u.kind, u.payload, u.run_at, $4::bigint, u.carried, u.key, u.key, CASE WHEN u.alone THEN u.key END FROM unnest($1::text[], $2::text[], $3::bigint[], $5::text[], $6::bytea[], $7::boolean[]) WITH ORDINALITY AS u(kind, payload, run_at, carried, key, alone, nth) CROSS JOIN short ORDER BY u.nth ON CONFLICT DO NOTHING RETURNING id, kind, unique_key) SELECT array_agg(id ORDER BY id), CASE WHEN count(*) < cardinality($1::text[]) THEN array_agg(kind ORDER BY id) END, CASE WHEN count(*) < cardinality($1::text[]) THEN array_agg(unique_key ORDER BY id) END, CASE WHEN count(*) > 0 AND $9::text IS NOT NULL THEN pg_notify($9::text, '')::text END FROM pushed;

-- push_keyed
SELECT "own"."fastjobs_push_1"($1::text[], $2::text[], $3::bigint[], $4::text[], $5::text[], $6::boolean[], $7::bigint[], $8::boolean[], $9::text[], $10::bigint[], $11::bigint, $12::integer, $13::text);

-- promote
SELECT "own"."fastjobs_promote_freed_1"($1::text[], $2::bytea[]);

-- sweep
SELECT "own"."fastjobs_sweep_1"($1::bigint);

-- prune
SELECT "own"."fastjobs_prune_1"($1::bigint, $2::integer, $3::bigint);

-- take
SELECT * FROM "own"."fastjobs_take_1"($1::text[], $2::text[], $3::integer[], $4::bigint[], $5::integer[], $6::bigint);

-- settle
SELECT "own"."fastjobs_settle_1"($1::text[], $2::text[], $3::integer[], $4::bigint[], $5::bigint[]);

-- cancel
SELECT * FROM "own"."fastjobs_cancel_1"($1::bigint[], $2::bigint);

-- progress
SELECT "own"."fastjobs_progress_1"($1::bigint[], $2::bigint[], $3::text[]);

-- runs
SELECT name, run_at FROM "own"."fastjobs_schedules" WHERE name = ANY($1::text[]);

-- looks.counts
SELECT k.kind, (SELECT count(*) FROM (SELECT 1 FROM "own"."fastjobs_jobs" AS j WHERE j.kind = k.kind AND j.state = 0 LIMIT :most) AS few), (SELECT count(*) FROM (SELECT 1 FROM "own"."fastjobs_jobs" AS j WHERE j.kind = k.kind AND j.state = 0 AND j.run_at <= :now LIMIT :most) AS few), (SELECT count(*) FROM (SELECT 1 FROM "own"."fastjobs_jobs" AS j WHERE j.kind = k.kind AND j.state = 1 LIMIT :most) AS few), (SELECT count(*) FROM (SELECT 1 FROM "own"."fastjobs_jobs" AS j WHERE j.kind = k.kind AND j.state = 2 LIMIT :most) AS few), (SELECT count(*) FROM (SELECT 1 FROM "own"."fastjobs_jobs" AS j WHERE j.kind >= k.kind AND j.kind <= k.kind AND j.state = 3 ORDER BY j.kind, j.failed_at, j.id LIMIT :most) AS few), (SELECT j.run_at FROM "own"."fastjobs_jobs" AS j WHERE j.kind = k.kind AND j.state = 0 ORDER BY j.run_at, j.id LIMIT 1), k.held_until, k.paused FROM "own"."fastjobs_kinds" AS k ORDER BY k.kind;

-- looks.job
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), octet_length(j.payload), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, CASE WHEN j.state = 2 THEN (SELECT h.id FROM "own"."fastjobs_slots" AS s JOIN "own"."fastjobs_jobs" AS h ON h.id = s.job_id WHERE s.kind = j.kind AND s.alone_key = j.alone_key AND h.claim = s.claim AND h.state + 0 = 1 AND h.held_until > :now LIMIT 1) END, (SELECT k.held_until FROM "own"."fastjobs_kinds" AS k WHERE k.kind = j.kind), (SELECT k.paused FROM "own"."fastjobs_kinds" AS k WHERE k.kind = j.kind), (SELECT count(*) FROM (SELECT 1 FROM "own"."fastjobs_jobs" AS h WHERE h.kind = j.kind AND h.state = 1 AND h.held_until > :now LIMIT 1001) AS few) FROM "own"."fastjobs_jobs" AS j WHERE j.id = :id;

-- looks.waiting
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), octet_length(j.payload), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM "own"."fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT k.paused FROM "own"."fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM "own"."fastjobs_jobs" AS h WHERE h.kind = :kind AND h.state = 1 AND h.held_until > :now LIMIT 1001) AS few) FROM "own"."fastjobs_jobs" AS j WHERE j.kind = :kind AND j.state = 0 ORDER BY j.run_at, j.id LIMIT :most;

-- looks.waiting
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), octet_length(j.payload), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM "own"."fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT k.paused FROM "own"."fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM "own"."fastjobs_jobs" AS h WHERE h.kind = :kind AND h.state = 1 AND h.held_until > :now LIMIT 1001) AS few) FROM "own"."fastjobs_jobs" AS j WHERE j.kind = :kind AND j.state = 0 AND (j.run_at, j.id) > (:at, :last) ORDER BY j.run_at, j.id LIMIT :most;

-- looks.held
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), octet_length(j.payload), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM "own"."fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT k.paused FROM "own"."fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM "own"."fastjobs_jobs" AS h WHERE h.kind = :kind AND h.state = 1 AND h.held_until > :now LIMIT 1001) AS few) FROM "own"."fastjobs_jobs" AS j WHERE j.kind = :kind AND j.state = 1 ORDER BY j.held_until, j.id LIMIT :most;

-- looks.held
SELECT j.id, j.kind, j.state, substr(j.payload, 1, :cut), octet_length(j.payload), j.run_at, j.created_at, j.attempts, j.lost, j.error, j.held_until, j.failed_at, j.carried, j.name, j.own_key IS NOT NULL, j.stop_asked, j.progress, NULL, (SELECT k.held_until FROM "own"."fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT k.paused FROM "own"."fastjobs_kinds" AS k WHERE k.kind = :kind), (SELECT count(*) FROM (SELECT 1 FROM "own"."fastjobs_jobs" AS h WHERE h.kind = :kind AND h.state = 1 AND h.held_until > :now LIMIT 1001) AS few) FROM "own"."fastjobs_jobs" AS j WHERE j.kind = :kind AND j.state = 1 AND j.held_until >= :at AND (j.held_until, j.id) > (:at, :last) ORDER BY j.held_until, j.id LIMIT :most;

-- looks.failed
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, octet_length(j.payload), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM "own"."fastjobs_jobs" AS j WHERE j.state = 3 ORDER BY j.failed_at DESC, j.id DESC LIMIT :most;

-- looks.failed
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, octet_length(j.payload), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM "own"."fastjobs_jobs" AS j WHERE j.state = 3 AND (j.failed_at, j.id) < (:at, :last) ORDER BY j.failed_at DESC, j.id DESC LIMIT :most;

-- looks.failed_kind
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, octet_length(j.payload), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM "own"."fastjobs_jobs" AS j WHERE j.state = 3 AND j.kind >= :kind AND j.kind <= :kind ORDER BY j.kind DESC, j.failed_at DESC, j.id DESC LIMIT :most;

-- looks.failed_kind
SELECT j.id, j.kind, substr(j.payload, 1, :cut), j.attempts, j.error, j.failed_at, j.created_at, j.carried, octet_length(j.payload), j.lost, j.name, j.own_key IS NOT NULL, j.progress FROM "own"."fastjobs_jobs" AS j WHERE j.state = 3 AND j.kind >= :kind AND (j.kind, j.failed_at, j.id) < (:kind, :at, :last) ORDER BY j.kind DESC, j.failed_at DESC, j.id DESC LIMIT :most;
