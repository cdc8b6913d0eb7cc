-- Returns what is wrong with the arguments of a claim in SQL; NULL: nothing.
create or replace function {schema}.claim_refusal(
  p_queue text,
  p_types text[],
  p_worker text,
  p_count int,
  p_release text
)
returns text
language sql immutable parallel safe
as $$
  select case
    when coalesce(length(p_queue), 0) not between 1 and 100
      then 'queue must be 1 to 100 characters'
    when coalesce(cardinality(p_types), 0) not between 1 and 1000
      or array_position(p_types, null) is not null
      then 'types must be 1 to 1000 names'
    when coalesce(length(p_worker), 0) not between 1 and 200
      then 'worker must be 1 to 200 characters'
    when p_count is null or p_count not between 1 and 1000
      then 'n must be from 1 to 1000'
    when coalesce(length(p_release), 0) not between 1 and 200
      then 'release must be 1 to 200 characters'
  end
$$;
