-- Returns until when the starts of a key are given away (base, in microseconds from p_now), with
-- its state as of then, the pace and the burst; no row: there is no such limit. A job of cost c may
-- start at base + (c - burst) * spacing.
-- Locks: none; indexes rate_limit_pkey and rate_limit_key_pkey.
create or replace function {schema}.limit_now(p_name text, p_key text, p_now timestamptz)
returns table (
  state {schema}.rate_limit_key,
  burst int,
  spacing bigint,
  late bigint,
  ahead bigint,
  base bigint
)
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan
as $$
begin
  select l.burst, p.spacing, p.late, p.ahead into burst, spacing, late, ahead
  from {schema}.rate_limit l
  cross join lateral {schema}.limit_pace(l.starts, l.per, l.burst) p
  where l.name = p_name;
  if found then
    state := {schema}.limit_normal({schema}.limit_state(p_name, p_key), spacing, p_now);
    ahead := case when state.held_to > p_now then 0 else ahead end;
    base := {schema}.limit_base(state, spacing, burst, p_now);
    state.name := p_name;
    state.key := p_key;
    return next;
  end if;
end $$;
