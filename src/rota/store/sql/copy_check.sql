-- Look whether this is a restored copy.
-- Parameters: none
-- Rows: copied text (how the stamp differs; NULL: it does not)
-- Locks: the row of the site, when what is found differs from what it says.
-- Keeps: M87; a production dump in staging does nothing until somebody says so.
select rota.copy_check() as copied
