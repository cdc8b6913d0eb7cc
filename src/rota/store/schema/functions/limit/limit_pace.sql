-- Returns the pace of a limit in microseconds.
--
-- spacing is the T of GCRA, for a cost of 1. With per / (starts - burst + 1) the costs in any
-- window sum up to at most `starts`: one burst, and what becomes free within the window. A job may
-- start up to `late` after its slot; so starts in any window sum up to at most starts + burst.
-- `late` is burst * spacing or, if more, a tenth of per, at most 250 ms, paid for with a wider
-- spacing: no machine starts handlers to the millisecond. A tenth of it is left for the way from
-- the last look at the clock to the handler's first line.
--
-- Starts are given up to `ahead` of their slots, 250 ms less the time of a burst: else a fast limit
-- with a small burst would start a burst a look. A start whose worker is lost is lost.
create or replace function {schema}.limit_pace(
  p_starts int,
  p_per interval,
  p_burst int
)
returns table (spacing bigint, late bigint, ahead bigint)
language sql immutable parallel safe
as $$
  select
    s.spacing,
    greatest(p_burst * s.spacing, s.least_late) * 9 / 10,
    greatest(0, 250000 - p_burst * s.spacing)
  from (
    select
      greatest(
        1,
        ceil(p.per / (p_starts - p_burst + 1)),
        ceil((p.per + p.least_late) / (p_starts + 1))
      )::bigint as spacing,
      p.least_late
    from (
      select
        extract(epoch from p_per)::numeric * 1000000 as per,
        least(extract(epoch from p_per)::numeric * 100000, 250000)::bigint as least_late
    ) p
  ) s
$$;
