-- Declare job types.
-- Parameters: types text (a JSON array, see the function); release text
-- Rows: declared int4
-- Locks: the rows of the types, in the order of their names.
-- Keeps: M15, a plain INSERT takes what the type declares.
select rota.job_type_declare(:types::text::jsonb, :release::text) as declared
