-- Writes the progress of a running job.
create or replace function {schema}.progress(
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
  perform {schema}.job_by_claim(progress.id, progress.claims);
  if progress.done is null
    or progress.done not between 0 and 9007199254740992
    or progress.total not between 0 and 9007199254740992
  then
    raise exception 'rota.progress: done and total must be from 0 to 2^53' using errcode = '22023';
  end if;
  perform {schema}.job_progress(
    array[progress.id],
    array[progress.claims],
    array[
      jsonb_build_object(
        'done', progress.done,
        'total', progress.total,
        'note', nullif({schema}.redact(progress.note, 200), '')
      )::text
    ],
    true
  );
  if not found then
    perform {schema}.lease_lost(progress.id, progress.claims);
  end if;
end $$;
revoke execute on function {schema}.progress(bigint, int, float8, float8, text) from public;
