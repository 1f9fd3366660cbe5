"""What keys and names need on Postgres, as functions of the database's: the push, the wake-ups, done in, prune, sweep.

Each is pinned to its indexes like the claim, for the same reason, as the app's own connection calls some of them. What
the app's transaction calls takes no lock that a claim or a mark would wait for until that transaction ends.
Longer than 300 lines, as a function's text is read in one piece.
"""

# ruff: noqa: S608 - the names in the texts are the tables' own, which were checked as they were made

from __future__ import annotations

from fastjobs.stores.sql.dialects.postgres.function import VERSION, Function, pinned
from fastjobs.stores.sql.tables import Tables


def promote(tables: Tables) -> Function:
    """Has the earliest parked job of each of these keys wait again, and answers how many it were.

    Called in a statement of its own after the key was let go, so that it sees who parked meanwhile. One that someone
    has locked is passed over: the sweep finds it. To wake one too many does no harm: the next claim parks it again.
    """
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}promote_{int(VERSION)}"'
    jobs = f'{schema}"{tables.jobs.name}"'
    return pinned(
        name,
        f"""CREATE FUNCTION {name}(p_kinds text[], p_keys bytea[]) RETURNS integer LANGUAGE plpgsql VOLATILE
  {{nested}} {{once}} AS $$
DECLARE
  v_ids bigint[];
BEGIN
  v_ids := ARRAY(
    SELECT h.id FROM (SELECT DISTINCT u.kind, u.key FROM unnest(p_kinds, p_keys) u(kind, key)) u
    CROSS JOIN LATERAL (
      SELECT j.id FROM {jobs} j WHERE j.kind = u.kind AND j.alone_key = u.key AND j.state = 2
      ORDER BY j.run_at, j.id LIMIT 1 FOR UPDATE SKIP LOCKED) h);
  IF cardinality(v_ids) > 0 THEN
    UPDATE {jobs} j SET state = 0 WHERE j.id = ANY (v_ids);
  END IF;
  RETURN cardinality(v_ids);
END $$""",
    )


def promote_freed(tables: Tables) -> Function:
    """As `promote`, for keys whose slots were left where they are. A claim that still found one had, and has not
    committed yet, is waited for: whom it parks nobody would wake."""
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}promote_freed_{int(VERSION)}"'
    promote = f'{schema}"{tables.prefix}promote_{int(VERSION)}"'
    slots = f'{schema}"{tables.slots.name}"'
    return pinned(
        name,
        f"""CREATE FUNCTION {name}(p_kinds text[], p_keys bytea[]) RETURNS integer LANGUAGE plpgsql VOLATILE
  {{nested}} {{once}} AS $$
BEGIN
  PERFORM 1 FROM (SELECT DISTINCT u.kind, u.key FROM unnest(p_kinds, p_keys) u(kind, key)) a
  JOIN {slots} s ON s.kind = a.kind AND s.alone_key = a.key
  ORDER BY s.kind, s.alone_key FOR UPDATE OF s;
  RETURN {promote}(p_kinds, p_keys);
END $$""",
    )


def keep_names(tables: Tables) -> Function:
    """Keeps names of jobs that have ended taken for as long as each was to be."""
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}keep_names_{int(VERSION)}"'
    names = f'{schema}"{tables.names.name}"'
    return Function(
        name,
        f"""CREATE FUNCTION {name}(p_names text[], p_keeps bigint[], p_now bigint) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO {names} AS n (name, until)
  SELECT u.name, max(p_now + u.keep) FROM unnest(p_names, p_keeps) u(name, keep)
  WHERE u.keep > 0 GROUP BY u.name ORDER BY u.name COLLATE "C"
  ON CONFLICT (name) DO UPDATE SET until = greatest(n.until, excluded.until);
END $$""",
    )


def push(tables: Tables) -> Function:
    """The push of jobs of which some have a key or a name, all or none; an array has an element for each job.

    It answers their ids in the same order: NULL for one that's there already, and for a latest push the one that waits.
    `p_wait` is how many milliseconds it waits at most for another transaction that pushes the same key or name, where
    it fails by lock_not_available; NULL for as long as that takes. `p_channel`, where given, is notified.
    `until + 0` is no column of an index: statistics of the empty table would have all names looked through by it.
    Jobs are taken by kind and key, so that no two pushes of the same keys wait for each other; where one has a name
    they're taken in their own order.
    """
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}push_{int(VERSION)}"'
    jobs, names = f'{schema}"{tables.jobs.name}"', f'{schema}"{tables.names.name}"'
    promote = f'{schema}"{tables.prefix}promote_{int(VERSION)}"'
    return pinned(
        name,
        f"""CREATE FUNCTION {name}(
  p_kinds text[], p_payloads text[], p_run_ats bigint[], p_carried text[], p_keys text[], p_latest boolean[],
  p_at_mosts bigint[], p_alone boolean[], p_names text[], p_keeps bigint[], p_now bigint, p_wait integer,
  p_channel text
) RETURNS bigint[] LANGUAGE plpgsql VOLATILE
  {{nested}} {{once}} AS $$
DECLARE
  v_ids bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(p_kinds)]);
  v_named boolean := EXISTS (SELECT 1 FROM unnest(p_names) n WHERE n IS NOT NULL);
  v_had bigint[];
  v_id bigint; v_until bigint; v_run_at bigint;
  v_found record; r record;
  v_kinds text[]; v_keys bytea[];
  v_new integer[] := '{{}}';
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
      EXISTS (SELECT 1 FROM {names} n WHERE n.name = r.name AND n.until + 0 > p_now)
      OR EXISTS (SELECT 1 FROM {jobs} j WHERE j.name = r.name));
    LOOP
      INSERT INTO {jobs} (
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
            SELECT n.until INTO v_until FROM {names} n WHERE n.name = r.name AND n.until + 0 > p_now;
          ELSE
            -- A plain read wouldn't see what came after the transaction's first statement. This fails there.
            INSERT INTO {names} AS n (name, until) VALUES (r.name, p_now)
            ON CONFLICT (name) DO UPDATE SET until = n.until RETURNING n.until INTO v_until;
          END IF;
          IF v_until > p_now THEN
            DELETE FROM {jobs} j WHERE j.id = v_id;
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
      EXIT WHEN r.name IS NOT NULL AND EXISTS (SELECT 1 FROM {jobs} j WHERE j.name = r.name);
      SELECT j.id, j.state, j.run_at, coalesce(j.first_push_at, j.created_at) AS first, j.alone_key INTO v_found
      FROM {jobs} j WHERE j.kind = r.kind AND j.unique_key = r.key FOR UPDATE;
      IF FOUND THEN
        IF r.name IS NOT NULL THEN
          -- Nothing is pushed, so the name stays free; but one that's taken is to leave the job as it is.
          SELECT n.until INTO v_until FROM {names} n WHERE n.name = r.name AND n.until + 0 > p_now;
          EXIT WHEN FOUND;
        END IF;
        v_id := v_found.id;
        v_run_at := least(r.run_at, v_found.first + r.at_most);
        IF v_run_at <> v_found.run_at THEN
          -- Otherwise one value a thousand times in a call would be a thousand versions of its row.
          UPDATE {jobs} j SET run_at = v_run_at WHERE j.id = v_id;
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
      UPDATE {jobs} j SET id = DEFAULT WHERE j.id = v_ids[r.nth] RETURNING j.id INTO v_id;
      v_ids[r.nth] := v_id;
    END LOOP;
    -- Latest pushes later in the call have answered the id that it had: the new one is the greater of the two.
    v_ids := ARRAY(
      SELECT u.id FROM (SELECT u.nth, max(u.id) OVER (PARTITION BY u.had) AS id
        FROM unnest(v_had, v_ids) WITH ORDINALITY u(had, id, nth)) u ORDER BY u.nth);
  END IF;
  IF v_kinds IS NOT NULL THEN
    PERFORM {promote}(v_kinds, v_keys);
  END IF;
  IF p_channel IS NOT NULL AND array_remove(v_ids, NULL) <> '{{}}' THEN
    PERFORM pg_notify(p_channel, '');
  END IF;
  RETURN v_ids;
END $$""",
    )


def done_in(tables: Tables) -> Function:
    """The mark Done in a transaction of the app's, which waits for whoever has the row, and whether the claim had it.

    It leaves the slot of a one-at-a-time job where it is: a claim of that key would wait for the app's commit. The
    claims and the sweep see by the job itself that the slot is nobody's.
    """
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}done_in_{int(VERSION)}"'
    jobs = f'{schema}"{tables.jobs.name}"'
    promote = f'{schema}"{tables.prefix}promote_{int(VERSION)}"'
    keep_names = f'{schema}"{tables.prefix}keep_names_{int(VERSION)}"'
    return pinned(
        name,
        f"""CREATE FUNCTION {name}(p_id bigint, p_claim bigint, p_now bigint)
RETURNS TABLE (o_done boolean, o_kind text, o_key bytea) LANGUAGE plpgsql VOLATILE
  {{nested}} {{once}} AS $$
DECLARE
  v_gone record;
BEGIN
  DELETE FROM {jobs} j WHERE j.id = p_id AND j.claim = p_claim AND j.state <> 3
  RETURNING j.kind, j.alone_key, j.name, j.keep_name INTO v_gone;
  o_done := FOUND;
  IF o_done THEN
    o_kind := v_gone.kind;
    o_key := v_gone.alone_key;
    IF v_gone.keep_name > 0 THEN
      PERFORM {keep_names}(ARRAY[v_gone.name], ARRAY[v_gone.keep_name], p_now);
    END IF;
    IF o_key IS NOT NULL THEN
      PERFORM {promote}(ARRAY[o_kind], ARRAY[o_key]);
    END IF;
  END IF;
  RETURN NEXT;
END $$""",
    )


def sweep(tables: Tables) -> Function:
    """Wakes a parked job of each key that no job holds, and answers how many: it reads keys, not jobs."""
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}sweep_{int(VERSION)}"'
    jobs, slots = f'{schema}"{tables.jobs.name}"', f'{schema}"{tables.slots.name}"'
    promote = f'{schema}"{tables.prefix}promote_{int(VERSION)}"'
    return pinned(
        name,
        f"""CREATE FUNCTION {name}(p_now bigint) RETURNS integer LANGUAGE plpgsql VOLATILE
  {{nested}} {{once}} AS $$
DECLARE
  v_kinds text[]; v_keys bytea[];
BEGIN
  WITH RECURSIVE w(kind, key) AS (
    (SELECT j.kind, j.alone_key FROM {jobs} j WHERE j.state = 2 ORDER BY j.kind, j.alone_key LIMIT 1)
    UNION ALL
    SELECT n.kind, n.alone_key FROM w CROSS JOIN LATERAL (
      SELECT j.kind, j.alone_key FROM {jobs} j WHERE j.state = 2 AND (j.kind, j.alone_key) > (w.kind, w.key)
      ORDER BY j.kind, j.alone_key LIMIT 1) n
  )
  SELECT array_agg(w.kind), array_agg(w.key) INTO v_kinds, v_keys FROM w
  WHERE (
    SELECT (SELECT h.id FROM {jobs} h WHERE h.id = s.job_id AND h.claim = s.claim AND h.state + 0 = 1 LIMIT 1)
    FROM {slots} s
    WHERE s.kind = w.kind AND s.alone_key = w.key AND s.held_until > p_now LIMIT 1) IS NULL;
  RETURN CASE WHEN v_kinds IS NULL THEN 0 ELSE {promote}(v_kinds, v_keys) END;
END $$""",
    )


def prune(tables: Tables) -> Function:
    """Removes at most `p_limit` rows of what is kept no longer, and answers how many. It waits for nobody."""
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}prune_{int(VERSION)}"'
    jobs, names = f'{schema}"{tables.jobs.name}"', f'{schema}"{tables.names.name}"'
    slots, throttles = f'{schema}"{tables.slots.name}"', f'{schema}"{tables.throttles.name}"'
    keep_names = f'{schema}"{tables.prefix}keep_names_{int(VERSION)}"'
    return pinned(
        name,
        f"""CREATE FUNCTION {name}(p_failed_before bigint, p_limit integer, p_now bigint)
RETURNS integer LANGUAGE plpgsql VOLATILE
  {{nested}} {{once}} AS $$
DECLARE
  v_left integer := greatest(p_limit, 0);
  v_tids tid[];
  v_names text[]; v_keeps bigint[];
BEGIN
  SELECT array_agg(t.ctid), array_agg(t.name) FILTER (WHERE t.keep_name > 0),
    array_agg(t.keep_name) FILTER (WHERE t.keep_name > 0) INTO v_tids, v_names, v_keeps
  FROM (
    SELECT j.ctid, j.name, j.keep_name FROM {jobs} j WHERE j.state = 3 AND j.failed_at < p_failed_before
    ORDER BY j.failed_at, j.id LIMIT v_left FOR UPDATE SKIP LOCKED) t;
  IF v_tids IS NOT NULL THEN
    DELETE FROM {jobs} j WHERE j.ctid = ANY (v_tids);
    v_left := v_left - cardinality(v_tids);
    IF v_names IS NOT NULL THEN
      PERFORM {keep_names}(v_names, v_keeps, p_now);
    END IF;
  END IF;
  v_tids := ARRAY(
    SELECT n.ctid FROM {names} n WHERE n.until <= p_now ORDER BY n.until LIMIT v_left FOR UPDATE SKIP LOCKED);
  IF cardinality(v_tids) > 0 THEN
    DELETE FROM {names} n WHERE n.ctid = ANY (v_tids);
    v_left := v_left - cardinality(v_tids);
  END IF;
  v_tids := ARRAY(SELECT s.ctid FROM {slots} s WHERE s.held_until <= p_now LIMIT v_left FOR UPDATE SKIP LOCKED);
  IF cardinality(v_tids) > 0 THEN
    DELETE FROM {slots} s WHERE s.ctid = ANY (v_tids);
    v_left := v_left - cardinality(v_tids);
  END IF;
  v_tids := ARRAY(
    SELECT t.ctid FROM {throttles} t WHERE t.free_at <= p_now ORDER BY t.free_at LIMIT v_left
    FOR UPDATE SKIP LOCKED);
  IF cardinality(v_tids) > 0 THEN
    DELETE FROM {throttles} t WHERE t.ctid = ANY (v_tids);
    v_left := v_left - cardinality(v_tids);
  END IF;
  RETURN greatest(p_limit, 0) - v_left;
END $$""",
    )
