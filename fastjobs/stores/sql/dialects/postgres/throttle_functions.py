"""The throttles on Postgres: taking places and settling them, each a function of the database's, in one round trip."""

# ruff: noqa: S608 - the names in the texts are the tables' own, which were checked as they were made

from __future__ import annotations

from fastjobs.stores.sql.dialects.postgres.function import VERSION, Function, pinned
from fastjobs.stores.sql.tables import Tables

RESERVED = 10_000_000
"""Microseconds that places are kept for whoever took them."""


def take(tables: Tables) -> Function:
    """Takes places of each, an element of each array for each asked: a row of slots and the wait for each, in order.

    Whoever takes of one name and key waits for others that do, for the moment that takes. It's a lock of no row, so
    that one that finds no place free writes nothing.
    """
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}take_{int(VERSION)}"'
    throttles = f'{schema}"{tables.throttles.name}"'
    lock_of = f"'{schema}\"{tables.throttles.name}\"'::regclass::oid::bigint::bit(32)::integer"
    return pinned(
        name,
        f"""CREATE FUNCTION {name}(
  p_names text[], p_keys text[], p_most integer[], p_per bigint[], p_wanted integer[], p_now bigint
) RETURNS TABLE (o_slots integer[], o_wait bigint) LANGUAGE plpgsql VOLATILE
  {{nested}} {{once}} AS $$
DECLARE
  v_at bigint := p_now + {int(RESERVED)};
  v_live integer[]; v_ats bigint[];
  v_room integer;
  r record;
BEGIN
  -- In order, so that no two wait for each other.
  PERFORM pg_advisory_xact_lock({lock_of}, l.hash) FROM (
    SELECT DISTINCT hashtext(u.name || ' ' || u.key) AS hash FROM unnest(p_names, p_keys) u(name, key) ORDER BY 1
  ) l;
  FOR r IN
    SELECT u.* FROM unnest(p_names, p_keys, p_most, p_per, p_wanted) WITH ORDINALITY
      u(name, key, most, per, wanted, nth) ORDER BY u.nth
  LOOP
    o_slots := '{{}}';
    o_wait := 0;
    SELECT coalesce(array_agg(t.slot), '{{}}'), coalesce(array_agg(least(t.at, p_now)), '{{}}') INTO v_live, v_ats
    FROM {throttles} t WHERE t.name = r.name AND t.key = r.key AND t.at + r.per > p_now;
    -- Also those of slots that a throttle of fewer places no longer has.
    v_room := greatest(least(r.wanted, r.most - cardinality(v_live)), 0);
    IF v_room > 0 THEN
      o_slots := ARRAY(
        SELECT f.slot FROM (
          SELECT s.slot FROM generate_series(0, r.most - 1) s(slot) EXCEPT SELECT l.slot FROM unnest(v_live) l(slot)
        ) f ORDER BY f.slot LIMIT v_room);
      INSERT INTO {throttles} (name, key, slot, at, free_at)
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
END $$""",
    )


def settle(tables: Tables) -> Function:
    """Settles places that were taken, an element of each array for each slot: `p_starts` is when a job started, or
    NULL for none. One that someone has taken since is left as it is."""
    schema = f'"{tables.schema}".' if tables.schema else ""
    name = f'{schema}"{tables.prefix}settle_{int(VERSION)}"'
    throttles = f'{schema}"{tables.throttles.name}"'
    lock_of = f"'{schema}\"{tables.throttles.name}\"'::regclass::oid::bigint::bit(32)::integer"
    return pinned(
        name,
        f"""CREATE FUNCTION {name}(
  p_names text[], p_keys text[], p_slots integer[], p_untils bigint[], p_starts bigint[]
) RETURNS void LANGUAGE plpgsql VOLATILE
  {{nested}} {{once}} AS $$
BEGIN
  PERFORM pg_advisory_xact_lock({lock_of}, l.hash) FROM (
    SELECT DISTINCT hashtext(u.name || ' ' || u.key) AS hash FROM unnest(p_names, p_keys) u(name, key) ORDER BY 1
  ) l;
  UPDATE {throttles} t SET at = u.start, free_at = u.start + t.free_at - t.at
  FROM unnest(p_names, p_keys, p_slots, p_untils, p_starts) u(name, key, slot, until, start)
  WHERE t.name = u.name AND t.key = u.key AND t.slot = u.slot AND t.at = u.until AND u.start IS NOT NULL;
  DELETE FROM {throttles} t USING unnest(p_names, p_keys, p_slots, p_untils, p_starts) u(name, key, slot, until, start)
  WHERE t.name = u.name AND t.key = u.key AND t.slot = u.slot AND t.at = u.until AND u.start IS NULL;
END $$""",
    )
