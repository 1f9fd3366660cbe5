"""The claim and the marks on Postgres, each a function of the database's: one round trip, and plans that stay.

A queue's table is empty one minute and huge the next. Statistics, or a plan, of the empty minute would read all of the
huge one, so each function pins its plans: nothing but nested loops over indexes, planned once. An EXISTS is planned as
a join, which would still read all of a table that was empty then: a subquery with a LIMIT is left alone. A function is
made by the version of the tables that it's named after, and never replaced, so that an older instance keeps its own.
Each step inside is a statement of its own: at READ COMMITTED it then sees what has been committed until it began.
Longer than 300 lines, as a function's text is read in one piece.
"""

# ruff: noqa: S608 - the names in the texts are the tables' own, which were checked as they were made

from __future__ import annotations

from fastjobs.stores.sql.dialects.postgres import acting_functions, keyed_functions, throttle_functions
from fastjobs.stores.sql.dialects.postgres.function import VERSION, Function, pinned
from fastjobs.stores.sql.tables import Tables

JOB, EXHAUSTED, SUMMARY, BESIDE = 0, 1, 2, 3
"""What a row of the claim's answer is; BESIDE is the answer to what went with it."""
TRY_AGAIN, FAIL, GIVE_BACK, EXTEND, HOLD_BACK = 1, 2, 3, 4, 5
"""How the marks that change a row are told apart; Done removes it."""

_ROUNDS = 8
"""How often a claim looks for others in place of jobs it passed over, before it's to be asked again."""
_BEHIND = 100
"""How many due jobs of a kind are looked at for more to park, where a claim met one whose key another has."""
_EXTENDING = 5_000_000
"""Microseconds in which a mark is certainly kept or not."""
_PATIENT_ROUNDS = 4
"""After so many a claim leaves out the kinds whose jobs it parked: those that stand behind have their turn, too."""


def make_functions(tables: Tables) -> list[Function]:
    """All functions of these tables, in the order they're to be made."""
    return [
        exhausted(tables),
        keyed_functions.promote(tables),
        keyed_functions.promote_freed(tables),
        keyed_functions.keep_names(tables),
        claim(tables),
        mark(tables),
        keyed_functions.push(tables),
        keyed_functions.done_in(tables),
        keyed_functions.sweep(tables),
        keyed_functions.prune(tables),
        throttle_functions.take(tables),
        throttle_functions.settle(tables),
        acting_functions.cancel(tables),
        acting_functions.progress(tables),
    ]


def exhausted(tables: Tables) -> Function:
    """`core.exhausted.exhausted_text`, word for word: the claim that fails a job writes the text in the same step."""
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}exhausted_{int(VERSION)}"'
    return Function(
        name,
        f"""CREATE FUNCTION {name}(p_attempts integer, p_lost integer, p_error text, p_limit integer)
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
END $$""",
    )


def claim(tables: Tables) -> Function:
    """The claim. Each array has an element for each kind, and with `p_others` a last one for all other kinds;
    `p_levels` has each of their priorities once, the highest first.

    `p_floors` is where the walk of each kind's jobs begins, `p_free` how many jobs may be taken that are for a free
    worker alone, `p_full` whether holds that ran out are looked for. Its rows are the JOBs, the EXHAUSTED ones as they
    were, and a SUMMARY: when the next is due (id), how many index entries it met whose rows are gone (attempts), and
    whether to ask again (lost).

    Locks are taken in the order kinds, jobs, slots by kind and key, parked jobs. Of a kind with `p_at_once` the row is
    locked, by SKIP LOCKED, in a statement before the one that counts: that sees every claim which had it before. The
    slot of a kind and key says who holds it. It's waited for, as only a claim or a mark has it, for a moment: a mark
    that lets it go then wakes whom this claim parks.
    """
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}claim_{int(VERSION)}"'
    text_of = f'{schema}"{tables.prefix}exhausted_{int(VERSION)}"'
    jobs, kinds = f'{schema}"{tables.jobs.name}"', f'{schema}"{tables.kinds.name}"'
    slots = f'{schema}"{tables.slots.name}"'
    promote = f'{schema}"{tables.prefix}promote_{int(VERSION)}"'
    ready = f"'{schema}\"{tables.prefix}jobs_ready\"'::regclass"
    held = f"'{schema}\"{tables.prefix}jobs_held\"'::regclass"
    met = (
        f"pg_stat_get_xact_tuples_returned({ready}) - pg_stat_get_xact_tuples_fetched({ready})"
        f" + pg_stat_get_xact_tuples_returned({held}) - pg_stat_get_xact_tuples_fetched({held})"
    )
    # A job in the answer, after what the row is, in the order of `core.job.Job`.
    job_columns = (
        "o_id bigint, o_kind text, o_payload text, o_run_at bigint, o_attempts integer, o_claim bigint,"
        " o_lost integer, o_error text, o_carried text, o_stop boolean"
    )
    job = "j.id, j.kind, j.payload, j.run_at, j.attempts, j.claim, j.lost, j.error, j.carried, j.stop_asked <> 0"
    # What may be taken of a kind that's walked: with no worker free, only what needs none, and what is failed anyway.
    of_one = "(v_free > 0 OR j.lost = 0 OR j.attempts >= p_attempts[v_term])"
    of_each = "(v_free > 0 OR j.lost = 0 OR j.attempts >= p_attempts[k.term])"
    # Those whose holds have just run out and that nobody could have wait again are someone's who may be extending them.
    is_held = f"j.state = 1 AND j.held_until > p_now - {int(_EXTENDING)}"
    held_of_some = f"(SELECT count(*) FROM {jobs} j WHERE j.kind = v_some[1] AND {is_held})"
    held_of_a = f"(SELECT count(*) FROM {jobs} j WHERE j.kind = a.kind AND {is_held})"
    return pinned(
        name,
        f"""CREATE FUNCTION {name}(
  p_kinds text[], p_holds bigint[], p_attempts integer[], p_limits integer[], p_priorities integer[],
  p_levels integer[], p_ahead_ok boolean[], p_floors bigint[], p_others boolean, p_limit integer, p_free integer,
  p_full boolean, p_now bigint, p_at_once integer[]
) RETURNS TABLE (
  o_what integer, {job_columns}
) LANGUAGE plpgsql VOLATILE
  {{nested}} SET enable_indexonlyscan = off {{once}} AS $$
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
  v_met bigint := {met};
  v_ids bigint[]; v_tids tid[]; v_spent tid[];
  v_used integer; v_out integer;
  v_room bigint;
  v_wanted text[]; v_locked text[];
  v_woken_kinds text[]; v_woken_keys bytea[];
  v_alone boolean;
  v_parks boolean;
  v_did_park boolean := false;
  v_parked text[] := '{{}}'; v_left_out text[] := '{{}}';
  v_seen_kinds text[] := '{{}}'; v_seen_keys bytea[] := '{{}}';
  v_last_kind text; v_last_key bytea;
  a_tids tid[]; a_ids bigint[]; a_kinds text[]; a_keys bytea[]; a_claims bigint[]; a_ends bigint[];
  v_won bigint[]; v_lose tid[]; v_skip tid[]; v_lose_kinds text[]; v_skip_kinds text[];
BEGIN
  -- Which kinds: neither held back nor paused.
  IF p_others THEN
    SELECT array_agg(a.kind) INTO v_asked FROM (
      SELECT u.kind FROM unnest(p_kinds[:v_last - 1]) u(kind) UNION SELECT k.kind FROM {kinds} k) a;
  END IF;
  SELECT array_agg(a.kind), array_agg(coalesce(array_position(p_kinds, a.kind), v_last)) INTO v_kinds, v_terms
  FROM unnest(v_asked) a(kind)
  WHERE NOT EXISTS (
    SELECT 1 FROM {kinds} k WHERE k.kind = a.kind AND (k.held_until > p_now OR k.paused <> 0));

  IF p_full AND v_left > 0 AND v_kinds IS NOT NULL THEN
    -- Holds that ran out: their jobs wait again, and their claims may mark them until another claim takes them.
    v_ids := ARRAY(
      SELECT h.id FROM unnest(v_kinds) a(kind) CROSS JOIN LATERAL (
        SELECT j.id FROM {jobs} j WHERE j.kind = a.kind AND j.state = 1 AND j.held_until <= p_now
        ORDER BY j.held_until LIMIT 1000 FOR UPDATE SKIP LOCKED) h);
    IF cardinality(v_ids) > 0 THEN
      WITH back AS (
        UPDATE {jobs} j SET state = 0, held_until = 0, lost = j.lost + 1 WHERE j.id = ANY (v_ids)
        RETURNING j.kind, j.alone_key
      )
      SELECT array_agg(b.kind), array_agg(b.alone_key) INTO v_woken_kinds, v_woken_keys
      FROM back b WHERE b.alone_key IS NOT NULL;
      IF v_woken_kinds IS NOT NULL THEN
        PERFORM {promote}(v_woken_kinds, v_woken_keys);
        v_woken_kinds := NULL;
        v_woken_keys := NULL;
      END IF;
      v_again := (cardinality(v_ids) >= 1000)::integer;
    END IF;
  END IF;

  IF v_left > 0 AND v_kinds IS NOT NULL AND array_remove(p_at_once, NULL) <> '{{}}' THEN
    v_wanted := ARRAY(
      SELECT a.kind FROM unnest(v_kinds, v_terms) a(kind, term) WHERE p_at_once[a.term] IS NOT NULL
        AND (
          SELECT j.id FROM {jobs} j WHERE j.kind = a.kind AND j.state = 0 AND j.run_at >= p_floors[a.term]
            AND j.run_at <= p_now ORDER BY j.run_at, j.id LIMIT 1) IS NOT NULL
        AND p_at_once[a.term] > {held_of_a});
    v_locked := ARRAY(
      SELECT k.kind FROM {kinds} k WHERE k.kind = ANY (v_wanted) AND k.held_until <= p_now AND k.paused = 0
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
      IF v_round >= {int(_ROUNDS)} THEN
        v_again := 1;
        EXIT;
      END IF;
      v_round := v_round + 1;
      IF v_round > {int(_PATIENT_ROUNDS)} THEN
        v_left_out := v_left_out || v_parked;
        v_parked := '{{}}';
      END IF;
      IF v_left_out <> '{{}}' THEN
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
          SELECT j.id FROM {jobs} j WHERE j.kind = a.kind AND j.state = 0 AND j.run_at >= p_floors[a.term]
            AND j.run_at <= p_now ORDER BY j.run_at, j.id LIMIT 1) IS NOT NULL;
        EXIT WHEN v_some IS NULL;
      END IF;
      -- Which jobs. Their locks are taken where it's known how many of each kind there are to be: SKIP LOCKED then
      -- passes over what another claim has, and takes the next.
      IF cardinality(v_some) = 1 THEN
        v_term := v_some_terms[1];
        v_room := NULL;
        IF p_at_once[v_term] IS NOT NULL THEN
          v_room := p_at_once[v_term] - {held_of_some};
        END IF;
        SELECT array_agg(t.ctid), count(*) FILTER (WHERE t.lost > 0 OR NOT p_ahead_ok[v_term]),
          count(*) FILTER (WHERE t.attempts >= p_attempts[v_term]), bool_or(t.alone_key IS NOT NULL)
        INTO v_tids, v_used, v_out, v_alone
        FROM (
          SELECT j.ctid, j.lost, j.attempts, j.alone_key FROM {jobs} j
          WHERE j.kind = v_some[1] AND j.state = 0 AND j.run_at >= p_floors[v_term] AND j.run_at <= p_now
            AND {of_one}
          ORDER BY j.run_at, j.id
          LIMIT greatest(
            least(v_left, v_rooms[v_term], v_room, CASE WHEN NOT p_ahead_ok[v_term] THEN v_free END), 0)
          FOR UPDATE SKIP LOCKED) t;
      ELSE
        WITH k AS MATERIALIZED (
          SELECT a.kind, a.term, p_floors[a.term] AS floor,
            greatest(least(v_left, v_rooms[a.term], CASE WHEN NOT p_ahead_ok[a.term] THEN v_free END,
              CASE WHEN p_at_once[a.term] IS NOT NULL THEN p_at_once[a.term] - {held_of_a} END), 0) AS room
          FROM unnest(v_some, v_some_terms) a(kind, term)
        ), heads AS MATERIALIZED (
          SELECT k.kind, k.term, k.room, h.run_at, h.id FROM k CROSS JOIN LATERAL (
            SELECT j.run_at, j.id FROM {jobs} j
            WHERE j.kind = k.kind AND j.state = 0 AND j.run_at >= k.floor AND j.run_at <= p_now AND {of_each}
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
            SELECT j.ctid, j.lost, j.attempts, j.alone_key FROM {jobs} j
            WHERE j.kind = k.kind AND j.state = 0 AND j.run_at >= p_floors[k.term] AND j.run_at <= p_now
              AND {of_each}
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
          FROM {jobs} j CROSS JOIN LATERAL (SELECT coalesce(array_position(p_kinds, j.kind), v_last) AS term) t
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
          INTO v_woken_kinds, v_woken_keys FROM {jobs} j
          WHERE j.ctid = ANY (v_spent) AND j.alone_key IS NOT NULL ;
        END IF;
        RETURN QUERY SELECT 1, {job} FROM {jobs} j WHERE j.ctid = ANY (v_spent);
        UPDATE {jobs} j SET state = 3, held_until = 0, claim = j.claim + 1, unique_key = NULL, failed_at = p_now,
          error = {text_of}(
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
          FROM {jobs} j WHERE j.ctid = ANY (v_tids) AND j.alone_key IS NOT NULL ORDER BY j.run_at, j.id) o;
        IF a_ids IS NOT NULL THEN
          WITH taken AS (
            INSERT INTO {slots} AS s (kind, alone_key, job_id, claim, held_until)
            SELECT f.kind, f.key, f.id, f.claim, f.ends FROM (
              SELECT DISTINCT ON (u.kind COLLATE "C", u.key) u.kind, u.key, u.id, u.claim, u.ends
              FROM unnest(a_ids, a_kinds, a_keys, a_claims, a_ends) WITH ORDINALITY u(id, kind, key, claim, ends, nth)
              ORDER BY u.kind COLLATE "C", u.key, u.nth) f
            ON CONFLICT (kind, alone_key) DO UPDATE
            SET job_id = excluded.job_id, claim = excluded.claim, held_until = excluded.held_until
            WHERE s.held_until <= p_now
            RETURNING s.job_id
          )
          SELECT coalesce(array_agg(t.job_id), '{{}}') INTO v_won FROM taken t;
          IF cardinality(v_won) < cardinality(a_ids) THEN
            -- The rows of the others are locked now too, and what a new statement sees of their jobs is the truth: a
            -- slot whose job has ended in a transaction of the app's is nobody's.
            WITH taken AS (
              UPDATE {slots} s SET job_id = f.id, claim = f.claim, held_until = f.ends
              FROM (
                SELECT DISTINCT ON (u.kind COLLATE "C", u.key) u.kind, u.key, u.id, u.claim, u.ends
                FROM unnest(a_ids, a_kinds, a_keys, a_claims, a_ends) WITH ORDINALITY u(id, kind, key, claim, ends, nth)
                ORDER BY u.kind COLLATE "C", u.key, u.nth) f
              WHERE s.kind = f.kind AND s.alone_key = f.key AND s.job_id <> f.id AND (
                SELECT h.id FROM {jobs} h WHERE h.id = s.job_id AND h.claim = s.claim AND h.state + 0 = 1 LIMIT 1
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
            UPDATE {jobs} j SET state = 2 WHERE j.ctid = ANY (v_lose);
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
            SELECT count(*) INTO v_used FROM {jobs} j WHERE j.ctid = ANY (v_tids)
              AND (j.lost > 0 OR NOT p_ahead_ok[coalesce(array_position(p_kinds, j.kind), v_last)]);
          END IF;
        END IF;
      END IF;

      IF v_tids IS NOT NULL THEN
        IF v_out >= 0 OR v_parks THEN
          FOR v_term, v_count IN
            SELECT t.term, count(*) FROM {jobs} j
            CROSS JOIN LATERAL (SELECT coalesce(array_position(p_kinds, j.kind), v_last) AS term) t
            WHERE j.ctid = ANY (v_tids) GROUP BY t.term
          LOOP
            v_rooms[v_term] := v_rooms[v_term] - v_count;
          END LOOP;
        END IF;
        RETURN QUERY UPDATE {jobs} j SET state = 1, attempts = j.attempts + 1, claim = j.claim + 1,
          held_until = p_now + p_holds[coalesce(array_position(p_kinds, j.kind), v_last)],
          unique_key = NULL
        WHERE j.ctid = ANY (v_tids)
        RETURNING 0, {job};
        v_left := v_left - cardinality(v_tids);
        v_room := v_room - cardinality(v_tids);
        v_free := v_free - v_used;
      END IF;
      EXIT WHEN v_out < 0 AND NOT v_parks;
      IF v_parks AND v_lose_kinds IS NOT NULL AND v_left > 0 THEN
        -- Those that stand behind with the same keys, or there would be a round for each few of them.
        v_lose := ARRAY(
          SELECT h.ctid FROM unnest(v_lose_kinds) k(kind) CROSS JOIN LATERAL (
            SELECT j.ctid, j.kind, j.alone_key FROM {jobs} j WHERE j.kind = k.kind AND j.state = 0
              AND j.run_at >= p_floors[coalesce(array_position(p_kinds, k.kind), v_last)] AND j.run_at <= p_now
            ORDER BY j.run_at, j.id LIMIT {int(_BEHIND)}) h
          WHERE (h.kind, h.alone_key) IN (SELECT s.kind, s.key FROM unnest(v_seen_kinds, v_seen_keys) s(kind, key)));
        v_lose := ARRAY(
          -- Not the state itself, or an index of all that wait would do, too.
          SELECT j.ctid FROM {jobs} j WHERE j.ctid = ANY (v_lose) AND j.state + 0 = 0 FOR UPDATE SKIP LOCKED);
        UPDATE {jobs} j SET state = 2 WHERE j.ctid = ANY (v_lose);
      END IF;
    END LOOP;
  END LOOP;

  IF v_woken_kinds IS NOT NULL THEN
    PERFORM {promote}(v_woken_kinds, v_woken_keys);
    v_again := 1;
  END IF;
  IF v_left > 0 THEN
    IF v_did_park THEN
      v_again := 1;
    END IF;
    IF cardinality(v_asked) > 1 OR v_room IS NULL OR v_room > 0 THEN
      -- Not of one kind whose last place was taken here: it has no next.
      SELECT min(greatest(f.run_at, k.held_until)) INTO v_next
      FROM unnest(v_asked) a(kind) LEFT JOIN {kinds} k ON k.kind = a.kind
      CROSS JOIN LATERAL (
        SELECT j.run_at FROM {jobs} j WHERE j.kind = a.kind AND j.state = 0
          AND j.run_at >= p_floors[coalesce(array_position(p_kinds, a.kind), v_last)]
        ORDER BY j.run_at, j.id LIMIT 1) f
      WHERE (k.paused IS NULL OR k.paused = 0) AND CASE
        WHEN p_at_once[coalesce(array_position(p_kinds, a.kind), v_last)] IS NULL THEN true
        ELSE p_at_once[coalesce(array_position(p_kinds, a.kind), v_last)] > {held_of_a} END;
    END IF;
  END IF;
  o_what := 2;
  o_id := v_next;
  o_attempts := {met} - v_met;
  o_lost := v_again;
  RETURN NEXT;
END $$""",
    )


def mark(tables: Tables) -> Function:
    """The marks, no two of one job: those that are Done, and the others with what each is, its time and its error; a
    HoldBack has until when its kind is held.

    It answers one row: the ids whose marks weren't kept, those of them whose row someone has locked, and those kept
    that were asked to stop; each None for none; whether a parked job was woken; and whether it has locked slots or
    names, beside which the same transaction may wait for no others. What someone else's transaction
    has locked is passed over. What's waited for is a slot or a kind, which a claim or a mark has for a moment; and
    for a key that's given back while an open transaction pushes it, a tenth of a second in all, if no more are.
    """
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}mark_{int(VERSION)}"'
    jobs, kinds = f'{schema}"{tables.jobs.name}"', f'{schema}"{tables.kinds.name}"'
    slots = f'{schema}"{tables.slots.name}"'
    promote = f'{schema}"{tables.prefix}promote_{int(VERSION)}"'
    keep_names = f'{schema}"{tables.prefix}keep_names_{int(VERSION)}"'
    # A held job, or one that was held, put back as its hold ran out and not claimed again: the token alone tells.
    # FAILED is named so that a failed one is never met, whatever its token.
    mine = "j.id = u.id AND j.claim = u.claim AND j.state <> 3"
    extends = "(u.what <> 4 OR (j.state = 1 AND j.held_until > p_now))"
    return pinned(
        name,
        f"""CREATE FUNCTION {name}(
  p_done bigint[], p_done_claims bigint[],
  p_ids bigint[], p_claims bigint[], p_what integer[], p_at bigint[], p_errors text[], p_kinds_until bigint[],
  p_now bigint
) RETURNS TABLE (o_missed bigint[], o_busy bigint[], o_stop bigint[], o_woke boolean, o_slots boolean)
LANGUAGE plpgsql VOLATILE
  {{nested}} {{once}} AS $$
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
      SELECT j.id, j.ctid, j.alone_key, j.keep_name FROM {jobs} j WHERE {mine} FOR UPDATE SKIP LOCKED) l;
    IF cardinality(v_got) IS DISTINCT FROM cardinality(p_done) THEN
      o_missed := ARRAY(SELECT u.id FROM unnest(p_done) u(id) EXCEPT SELECT g.id FROM unnest(v_got) g(id));
      o_busy := ARRAY(
        SELECT u.id FROM unnest(p_done, p_done_claims) u(id, claim)
        CROSS JOIN LATERAL (SELECT 1 FROM {jobs} j WHERE {mine} LIMIT 1) l WHERE u.id = ANY (o_missed));
    END IF;
    v_got := NULL;
  END IF;
  IF cardinality(p_ids) > 0 THEN
    SELECT array_agg(l.id), array_agg(l.ctid), array_agg(u.what), array_agg(u.at), array_agg(u.error),
      bool_or(l.alone_key IS NOT NULL),
      bool_or(u.what IN (3, 5) AND l.own_key IS NOT NULL AND l.unique_key IS NULL AND l.stop_asked = 0)
    INTO v_got, v_tids, v_what, v_at, v_errors, v_alone, v_back
    FROM unnest(p_ids, p_claims, p_what, p_at, p_errors) u(id, claim, what, at, error) CROSS JOIN LATERAL (
      SELECT j.id, j.ctid, j.alone_key, j.own_key, j.unique_key, j.stop_asked FROM {jobs} j
      WHERE {mine} AND {extends} FOR UPDATE SKIP LOCKED) l;
    v_had := v_got;
    IF v_tids IS NOT NULL AND 5 = ANY (v_what) THEN
      INSERT INTO {kinds} AS k (kind, held_until, first_seen)
      SELECT j.kind, max(u.until), p_now FROM unnest(p_ids, p_what, p_kinds_until) u(id, what, until)
      CROSS JOIN LATERAL (SELECT o.kind FROM {jobs} o WHERE o.id = u.id LIMIT 1) j
      WHERE u.what = 5 AND u.id = ANY (v_got) GROUP BY j.kind ORDER BY j.kind COLLATE "C"
      ON CONFLICT (kind) DO UPDATE SET held_until = greatest(k.held_until, excluded.held_until);
    END IF;
  END IF;

  o_slots := coalesce(v_keyed, false) OR coalesce(v_alone, false);
  IF o_slots THEN
    -- The slots, in the order that claims take them. Who has one is asked in the statements after it.
    PERFORM 1 FROM (
      SELECT j.kind, j.alone_key FROM {jobs} j
      WHERE j.ctid = ANY (v_done || v_tids) AND j.alone_key IS NOT NULL
    ) a JOIN {slots} s ON s.kind = a.kind AND s.alone_key = a.alone_key
    ORDER BY s.kind, s.alone_key FOR UPDATE OF s;
    IF v_alone AND 4 = ANY (v_what) THEN
      WITH longer AS (
        UPDATE {slots} s SET held_until = e.at FROM (
          SELECT j.id, j.kind, j.alone_key, j.claim, u.at FROM unnest(v_tids, v_what, v_at) u(tid, what, at)
          CROSS JOIN LATERAL (SELECT o.id, o.kind, o.alone_key, o.claim FROM {jobs} o WHERE o.ctid = u.tid LIMIT 1) j
          WHERE u.what = 4 AND j.alone_key IS NOT NULL) e
        WHERE s.kind = e.kind AND s.alone_key = e.alone_key AND s.job_id = e.id AND s.claim = e.claim
        RETURNING s.job_id
      )
      -- One whose slot another has by now, as by that one's clock its hold was over, has no more of it.
      SELECT array_agg(u.id), array_agg(u.tid), array_agg(u.what), array_agg(u.at), array_agg(u.error)
      INTO v_got, v_tids, v_what, v_at, v_errors
      FROM unnest(v_got, v_tids, v_what, v_at, v_errors) u(id, tid, what, at, error)
      CROSS JOIN LATERAL (SELECT o.alone_key FROM {jobs} o WHERE o.ctid = u.tid LIMIT 1) j
      WHERE u.what <> 4 OR j.alone_key IS NULL OR u.id IN (SELECT l.job_id FROM longer l);
    END IF;
    WITH freed AS (
      SELECT j.id, j.kind, j.alone_key, j.claim FROM {jobs} j WHERE j.ctid = ANY (v_done) AND j.alone_key IS NOT NULL
      UNION ALL
      SELECT j.id, j.kind, j.alone_key, j.claim FROM unnest(v_tids, v_what) u(tid, what)
      CROSS JOIN LATERAL (SELECT o.id, o.kind, o.alone_key, o.claim FROM {jobs} o WHERE o.ctid = u.tid LIMIT 1) j
      WHERE u.what <> 4 AND j.alone_key IS NOT NULL
    ), gone AS (
      DELETE FROM {slots} s USING freed f
      WHERE s.kind = f.kind AND s.alone_key = f.alone_key AND s.job_id = f.id AND s.claim = f.claim
    )
    SELECT array_agg(f.kind), array_agg(f.alone_key) INTO v_kinds, v_keys FROM freed f;
  END IF;

  IF v_keyed THEN
    WITH gone AS (DELETE FROM {jobs} j WHERE j.ctid = ANY (v_done) RETURNING j.name, j.keep_name)
    SELECT array_agg(g.name), array_agg(g.keep_name) INTO v_names, v_keeps FROM gone g WHERE g.keep_name > 0;
    IF v_names IS NOT NULL THEN
      PERFORM {keep_names}(v_names, v_keeps, p_now);
    END IF;
  ELSIF v_done IS NOT NULL THEN
    DELETE FROM {jobs} j WHERE j.ctid = ANY (v_done);
  END IF;
  IF cardinality(p_ids) > 0 THEN
    WITH changed AS (
      UPDATE {jobs} j SET
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
        CROSS JOIN LATERAL (SELECT 1 FROM {jobs} j WHERE {mine} AND {extends} LIMIT 1) l
        WHERE u.id = ANY (v_missed) AND u.id <> ALL (coalesce(v_had, '{{}}')));
    END IF;
  END IF;
  IF v_back THEN
    -- Their keys, unless others have them; that of one that was cancelled is free.
    -- Who waits is the app's open transaction, which may take its time.
    v_lock_timeout := current_setting('lock_timeout');
    PERFORM set_config('lock_timeout', '100', true);
    FOR v_id IN
      SELECT j.id FROM unnest(v_got, v_what) u(id, what) CROSS JOIN LATERAL (
        SELECT o.id, o.kind, o.own_key FROM {jobs} o
        WHERE o.id = u.id AND o.own_key IS NOT NULL AND o.unique_key IS NULL AND o.stop_asked = 0 LIMIT 1) j
      WHERE u.what IN (3, 5) ORDER BY j.kind, j.own_key
    LOOP
      BEGIN
        UPDATE {jobs} j SET unique_key = j.own_key WHERE j.id = v_id;
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
    o_woke := {promote}(v_kinds, v_keys) > 0;
  END IF;
  RETURN NEXT;
END $$""",
    )
