-- Open a breaker by hand, for some seconds.
-- Parameters: name text; key text (NULL: all of its keys); for_s float8 (NULL: until it is reset);
--   why text; by text
-- Rows: breaker_trip text
-- Locks: as breaker_trip.
-- Keeps: M87, who and why.
select :schema.breaker_trip(
  :name::text, :key::text, :for_s::float8 * interval '1 second', :why::text, :by::text
)::text as breaker_trip
