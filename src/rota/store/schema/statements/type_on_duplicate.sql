-- Read what an enqueue of a type does if another job has the key.
-- Parameters: name text (of the type, or one of its aliases)
-- Rows: on_duplicate text. None when no such type is declared.
-- Locks: none; reads job_type by its key.
-- Keeps: M51, a producer without the code of a type does as the type declares.
select t.on_duplicate
from :schema.job_type t
where t.name = :schema.canonical_type(:name::text)
