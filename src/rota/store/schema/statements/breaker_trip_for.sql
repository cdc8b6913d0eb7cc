-- Open a breaker by hand, for some seconds or until an instant.
-- Parameters: name text; key text (NULL: all of its keys); until timestamptz; for_s float8 (seconds
--   from now, instead of until; both NULL: until it is reset); why text; by text
-- Rows: breaker_trip text
-- Locks: as breaker_trip.
-- Keeps: M87, who and why.
select :schema.breaker_trip(
  :name::text,
  :key::text,
  coalesce(extract(epoch from :until::timestamptz - :schema.clock())::float8, :for_s::float8)
    * interval '1 second',
  :why::text,
  :by::text
)::text as breaker_trip
