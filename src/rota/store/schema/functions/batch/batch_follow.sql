-- Enqueues what follows a batch that has ended (for batches_fold). The job's meta has the batch
-- and the counts of its members by outcome. In a chain (`succeeded`, `then 2`, `then 3` and so on)
-- the job is the only member of a new batch, which the rest follows. If the database refuses the
-- job, or a result that it takes is not there, the batch says why.
create or replace function {schema}.batch_follow(p_batch bigint, p_outcome text)
returns void
language plpgsql
as $$
declare
  v_batch {schema}.batch;
  v_job jsonb;
  v_next bigint;
  v_ids bigint[] := '{}';
  v_error text;
begin
  select b.* into v_batch
  from {schema}.batch b
  where b.id = p_batch;
  v_job := coalesce(v_batch.then_jobs -> p_outcome, v_batch.then_jobs -> 'ended');
  if v_job is not null then
    begin
      if p_outcome = 'succeeded' and v_batch.then_jobs ? 'then 2' then
        v_next := {schema}.batch_open(
          (
            select jsonb_object_agg(
              case c.place when 2 then 'succeeded' else 'then ' || c.place - 1 end, c.job
            )
            from (
              select substring(t.key from '^then (\d+)$')::int as place, t.value as job
              from jsonb_each(v_batch.then_jobs) t
            ) c
            where c.place >= 2
          ),
          'wait'::text,
          null::bigint
        );
      end if;
      v_ids := {schema}.jobs_insert(
        null::bigint[],
        jsonb_build_array(
          case
            when v_job ? 'takes' then {schema}.batch_payload(p_batch, v_job)
            else v_job -> 'payload'
          end
        ),
        case when v_job ->> 'idempotency_key' is not null
          then array[v_job ->> 'idempotency_key']
        end,
        case when v_job ->> 'group_key' is not null then array[v_job ->> 'group_key'] end,
        null::int[],
        jsonb_build_array(
          v_job
          || jsonb_build_object(
            'batch', v_next,
            'meta',
            coalesce(nullif(v_job -> 'meta', 'null'), '{}')
            || jsonb_build_object(
              'rota.batch',
              jsonb_build_object(
                'id', v_batch.id,
                'total', v_batch.total,
                'succeeded', v_batch.succeeded,
                'dead', v_batch.dead,
                'cancelled', v_batch.cancelled
              )
            )
          )
        )
      );
      if v_next is not null and v_ids[1] is not null then
        perform {schema}.batch_add(v_next, v_ids);
      elsif v_next is not null then  -- its key joined it to another job, which nothing follows
        perform {schema}.batch_withdraw(v_next, v_ids);
      end if;
    exception when others then
      if {schema}.is_no_rows_fault(sqlstate) then
        raise;
      end if;
      v_error := left(sqlstate || ': ' || sqlerrm, 500);
    end;
  end if;
  update {schema}.batch b
  set
    then_at = case when v_error is null then {schema}.clock() end,
    then_job = v_ids[1],
    then_error = v_error,
    updated_at = {schema}.clock()
  where b.id = p_batch;
end $$;
