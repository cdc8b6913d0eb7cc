"""The commands of before.crontab, as `rota crontab --import` has read them.

cron ran them in the home directory of their user, with PATH=/usr/bin:/bin. A worker runs them in
its own directory, with its own environment. cron sets no limit of time: give each a timeout that is
a little above its longest run. A command whose last run still goes on is not started beside it.
"""

import rota

app = rota.App()

# MAILTO=ops@example.com: Rota mails no output; docs/operate/alerts.md has what to do instead.

# the backup
app.command(
    "pg_dump",
    "pg_dump --file /backup/shop.dump shop",
    schedule="30 2 * * *",
    timezone="Europe/Stockholm",
    timeout="24h",
)
app.command(
    "import-feed",
    "flock -n feed.lock import-feed --all",
    schedule="*/5 * * * *",
    timezone="Europe/Stockholm",
    timeout="24h",
)
app.command(
    "import-feed-2",
    ["/bin/sh", "-c", 'import-feed --old | mail-report --to "ops 100%"'],
    schedule="@daily",
    timezone="Europe/Stockholm",
    timeout="24h",
)
# NOT CONVERTED: @reboot tunnel
# a job runs at a time, not at the start of a machine: use systemd
