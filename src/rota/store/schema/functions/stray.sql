-- The number from 0 to below 1 by which policy.py strays from the plan: the same for the same claim, in both languages.
create or replace function stray(p_id bigint, p_claims int) returns float8 language sql immutable parallel safe set search_path from current as $$
  select (div(xor_shifted(c.bits, 31), 2048) / 9007199254740992)::float8
  from (select (p_id::numeric * 11400714819323198485 + p_claims::numeric * 15111065706836454659) % 18446744073709551616 as bits) a
  cross join lateral (select xor_shifted(a.bits, 30) * 13787848793156543929 % 18446744073709551616 as bits) b
  cross join lateral (select xor_shifted(b.bits, 27) * 10723151780598845931 % 18446744073709551616 as bits) c
$$;
