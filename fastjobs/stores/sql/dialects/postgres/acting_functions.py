"""What is done to a job from outside on Postgres: the cancel and the progress, each a function of the database's."""

# ruff: noqa: S608 - the names in the texts are the tables' own, which were checked as they were made

from __future__ import annotations

from fastjobs.stores.sql.dialects.postgres.function import VERSION, Function, pinned
from fastjobs.stores.sql.tables import Tables


def cancel(tables: Tables) -> Function:
    """Removes the jobs that wait, and asks the held ones to stop.

    It answers one row: the ids of those removed, of those asked, and of those whose row someone has locked; each None
    for none; and whether a parked job was woken. Jobs that are locked are passed over. What's waited for is a slot,
    which a claim or a mark has for a moment: as there, in the order of kinds and keys.
    """
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}cancel_{int(VERSION)}"'
    jobs, slots = f'{schema}"{tables.jobs.name}"', f'{schema}"{tables.slots.name}"'
    promote = f'{schema}"{tables.prefix}promote_{int(VERSION)}"'
    keep_names = f'{schema}"{tables.prefix}keep_names_{int(VERSION)}"'
    return pinned(
        name,
        f"""CREATE FUNCTION {name}(p_ids bigint[], p_now bigint)
RETURNS TABLE (o_removed bigint[], o_asked bigint[], o_busy bigint[], o_woke boolean) LANGUAGE plpgsql VOLATILE
  {{nested}} {{once}} AS $$
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
    FROM {jobs} j WHERE j.id = u.id AND j.state <> 3 FOR UPDATE SKIP LOCKED) l;
  IF cardinality(v_got) IS DISTINCT FROM cardinality(p_ids) THEN
    o_busy := ARRAY(
      SELECT u.id FROM unnest(p_ids) u(id)
      CROSS JOIN LATERAL (SELECT 1 FROM {jobs} j WHERE j.id = u.id AND j.state <> 3 LIMIT 1) l
      WHERE u.id <> ALL (coalesce(v_got, '{{}}')));
  END IF;
  IF v_asked IS NOT NULL THEN
    UPDATE {jobs} j SET stop_asked = 1 WHERE j.ctid = ANY (v_asked) AND j.stop_asked = 0;
  END IF;
  IF v_gone IS NULL THEN
    RETURN NEXT;
    RETURN;
  END IF;
  IF v_alone THEN
    -- One that was parked frees nothing. One that waits may be the one that was to run next of its key, and one whose
    -- hold ran out has its key's slot still, unless another has taken it.
    SELECT array_agg(j.kind), array_agg(j.alone_key) INTO v_kinds, v_keys FROM {jobs} j
    WHERE j.ctid = ANY (v_gone) AND j.alone_key IS NOT NULL AND j.state <> 2;
    PERFORM 1 FROM (SELECT DISTINCT u.kind, u.key FROM unnest(v_kinds, v_keys) u(kind, key)) a
    JOIN {slots} s ON s.kind = a.kind AND s.alone_key = a.key
    ORDER BY s.kind, s.alone_key FOR UPDATE OF s;
    DELETE FROM {slots} s USING {jobs} j
    WHERE j.ctid = ANY (v_gone) AND s.kind = j.kind AND s.alone_key = j.alone_key AND s.job_id = j.id
      AND s.claim = j.claim;
  END IF;
  WITH gone AS (DELETE FROM {jobs} j WHERE j.ctid = ANY (v_gone) RETURNING j.name, j.keep_name)
  SELECT array_agg(g.name), array_agg(g.keep_name) INTO v_names, v_keeps FROM gone g WHERE g.keep_name > 0;
  IF v_names IS NOT NULL THEN
    PERFORM {keep_names}(v_names, v_keeps, p_now);
  END IF;
  IF v_kinds IS NOT NULL THEN
    -- In a statement of its own, which sees who parked until the slot was had.
    o_woke := {promote}(v_kinds, v_keys) > 0;
  END IF;
  RETURN NEXT;
END $$""",
    )


def progress(tables: Tables) -> Function:
    """Keeps how far jobs are, an element of each array for each, no two of one job. Those whose claim has the job no
    more are left as they are, and so are those that someone has locked."""
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}progress_{int(VERSION)}"'
    jobs = f'{schema}"{tables.jobs.name}"'
    return pinned(
        name,
        f"""CREATE FUNCTION {name}(p_ids bigint[], p_claims bigint[], p_texts text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
  {{nested}} {{once}} AS $$
DECLARE
  v_tids tid[]; v_texts text[];
BEGIN
  SELECT array_agg(l.ctid), array_agg(u.text) INTO v_tids, v_texts
  FROM unnest(p_ids, p_claims, p_texts) u(id, claim, text) CROSS JOIN LATERAL (
    SELECT j.ctid FROM {jobs} j WHERE j.id = u.id AND j.claim = u.claim AND j.state <> 3 FOR UPDATE SKIP LOCKED) l;
  IF v_tids IS NOT NULL THEN
    UPDATE {jobs} j SET progress = u.text FROM unnest(v_tids, v_texts) u(tid, text) WHERE j.ctid = u.tid;
  END IF;
END $$""",
    )
