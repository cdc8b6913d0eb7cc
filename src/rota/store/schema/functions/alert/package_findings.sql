-- Returns the rows of each function NAME_findings that `migrate` made for the tables of a package.
-- The error of a failing function is a finding itself.
create or replace function {schema}.package_findings()
returns table (package text, subject text, message text, cure text)
language plpgsql stable
as $$
begin
  for package in
    select m.package
    from {schema}.migration m
    join {schema}.definition d on d.name = m.package || '_findings'
    where m.package <> ''
    group by m.package
    order by m.package
  loop
    begin
      return query execute format(
        'select %L, f.subject, f.message, f.cure from {schema}.%I() f',
        package, package || '_findings'
      );
    exception when others then
      subject := package || '_findings';
      message := format('the function %s fails: %s', subject, sqlerrm);
      cure := 'repair it, or grant what it reads';
      return next;
    end;
  end loop;
end $$;
