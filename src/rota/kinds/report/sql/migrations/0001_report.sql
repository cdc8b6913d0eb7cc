-- Reports that somebody has asked for, each with its file once it is ready.
create table report_run (
  id bigint generated always as identity primary key,
  name text not null,
  params jsonb not null,
  asked_by text,
  created_at timestamptz not null default clock(),
  job bigint not null,                           -- that ran last, and finds the pages or joins them
  batch bigint,                                  -- of the pages, once they are found
  pages int,
  cancelled_at timestamptz,
  file text,                                     -- its name in the store, once it is there, …
  rows bigint,                                   -- … and what is in it
  size bigint,
  checksum text,                                 -- SHA-256
  finished_at timestamptz,
  expires_at timestamptz,                        -- from then on the file may go
  -- Who asks for the same name and parameters gets this run; NULL: another one by now.
  digest text
);

create unique index report_run_digest on report_run (digest) where digest is not null;

create index report_run_expires on report_run (expires_at) where expires_at is not null;

-- The files that may be in the store: each is noted before it is written. Its name belongs to one
-- claim of a job, so that a worker that was frozen overwrites nothing.
create table report_file (
  run bigint not null references report_run (id) on delete cascade,
  name text not null,
  page int,                                      -- NULL: all pages
  rows bigint,                                   -- once it is the one that counts for its page
  primary key (run, name)
);

create index report_run_name on report_run (name, id desc);
