-- Who is told of events, and how.
create table webhook_endpoint (
  id bigint generated always as identity primary key,
  name text not null unique,
  -- Only events with this account are for it; empty: those without one.
  account text not null default '',
  url text not null,
  events text[] not null default '{*}',
  -- The secrets that sign, the newest first, all others with the time until which they do:
  -- [{"secret": …, "until": …}], each a text, or as rota.Secret seals it. `rota secrets` knows
  -- columns of this name.
  sealed jsonb not null,
  -- Its deliveries go out one after the other, each once the one before has succeeded or is dead.
  in_order boolean not null default false,
  -- Whether the host of this URL may be in a private network.
  allow_private boolean not null default false,
  paused_at timestamptz,
  disabled_at timestamptz,
  has_failed boolean not null default false,     -- it is disabled, because it failed
  why text,                                      -- it is paused or disabled
  by text,
  failing_since timestamptz,                     -- since then nothing but failures, …
  failures int not null default 0,               -- … this many
  created_at timestamptz not null default clock(),
  changed_at timestamptz not null default clock()
);

create index webhook_endpoint_account on webhook_endpoint (account);

-- One for each endpoint and event: the job that brings it.
create table webhook_delivery (
  endpoint bigint not null references webhook_endpoint (id) on delete cascade,
  event_id text not null,
  event text not null,
  job bigint not null,
  created_at timestamptz not null default clock(),
  primary key (endpoint, event_id)
);

create index webhook_delivery_endpoint on webhook_delivery (endpoint, job desc);

create index webhook_delivery_created on webhook_delivery (created_at);
