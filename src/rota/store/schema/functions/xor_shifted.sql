-- 64 bits, unsigned, as PostgreSQL has none.
create or replace function xor_shifted(p_bits numeric, p_by int) returns numeric language sql immutable parallel safe set search_path from current as $$
  select case when mixed < 0 then mixed + 18446744073709551616 else mixed end
  from (select ((case when p_bits >= 9223372036854775808 then p_bits - 18446744073709551616 else p_bits end)::bigint
                # div(p_bits, 2::numeric ^ p_by)::bigint)::numeric as mixed) xored
$$;
