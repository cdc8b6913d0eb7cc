-- Writes the progress of a running job.
create or replace function {schema}.worker_progress(
  id bigint,
  claims int,
  done float8,
  total float8 default null,
  note text default null
)
returns void
language plpgsql security definer
as $$
begin
  perform {schema}.job_by_claim(id, claims);
  if done is null
    or done not between 0 and 9007199254740992
    or total not between 0 and 9007199254740992
  then
    raise exception 'rota.worker_progress: done and total must be from 0 to 2^53'
      using errcode = '22023';
  end if;
  perform {schema}.job_progress(
    array[id],
    array[claims],
    array[
      jsonb_build_object(
        'done', done,
        'total', total,
        'note', nullif({schema}.redact(note, 200), '')
      )::text
    ],
    true
  );
  if not found then
    perform {schema}.lease_lost(id, claims);
  end if;
end $$;
revoke execute on function {schema}.worker_progress(bigint, int, float8, float8, text) from public;
