-- Returns where a claim in SQL starts, from the `seen` of the previous claim (p_after; NULL: the
-- beginning). A position has its queue and types, `whole_at` (when everything was searched),
-- `asked_at` (the newest request to look back that it followed), `back_to` (how far back to look)
-- and `priorities`, each with the (run_at, id) up to which it was searched.
create or replace function {schema}.claim_position(p_queue text, p_types text[], p_after jsonb)
returns jsonb
language sql stable
as $$
  select
    jsonb_build_object(
      'queue', p_queue,
      'types', p_types,
      'asked_at', greatest(q.look_back_asked_at, (p_after ->> 'asked_at')::timestamptz)
    )
    || case
      when p_after ->> 'queue' = p_queue
        and p_after -> 'types' = to_jsonb(p_types)
        and (p_after ->> 'whole_at')::timestamptz
          between {schema}.clock() - interval '10 seconds' and {schema}.clock()
        then jsonb_build_object(
          'whole_at', p_after -> 'whole_at',
          'priorities', p_after -> 'priorities',
          'back_to', least(
            {schema}.clock() - interval '5 seconds',
            case
              when q.look_back_asked_at
                > coalesce((p_after ->> 'asked_at')::timestamptz, '-infinity')
                then q.look_back_to
            end
          )
        )
      else jsonb_build_object(
        'whole_at', {schema}.clock(),
        'priorities', '{}'::jsonb,
        'back_to', '1970-01-01 00:00:00+00'::timestamptz
      )
    end
  from (select) always
  left join {schema}.queue q on q.name = p_queue
$$;
