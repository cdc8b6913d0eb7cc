#!/usr/bin/env bash
# worker.sh QUEUE TYPE…
queue=$1; shift
types=$(IFS=,; echo "{$*}") me=${WORKER:-$(hostname):$$} stopping=0 seen='{}'
said=$(mktemp) complaint=$(mktemp)
trap 'stopping=$((stopping + 1))' TERM INT
trap 'rm -f "$said" "$complaint"' EXIT
exec {never}<> <(:)
nap() { read -rt "$1" -u "$never"; }
last() { tail -n "$1" "$2" | tail -c 100000 | iconv -c -f utf-8 -t utf-8; }  # LINES FILE: what fits an argument, and is a text

sql() {  # STATEMENT [name=value …]; exit status 2: no connection, 3: refused
    local statement=$1 pair given=(); shift
    for pair in "$@"; do given+=(-v "$pair"); done
    psql -XqAt -F $'\t' -v ON_ERROR_STOP=1 "${given[@]}" "$ROTA_DATABASE_URL" <<<"$statement"
}
say() { while sql "$@" >/dev/null; [ $? = 2 ]; do nap 1; done; }

keep() {  # ID CLAIM PROGRAM: renew until the program ends; stop it when the job is lost or cancelled, or the worker is gone
    local answer status
    while ! nap "${RENEW_S:-15}" && kill -0 "$3" 2>/dev/null; do
        kill -0 $$ 2>/dev/null || { kill "$3"; return; }
        answer=$(sql "select cancel_requested from rota.worker_renew(:'id', :'claim')" id="$1" claim="$2"); status=$?
        if [ "$status" != 2 ] && [ "$answer" != f ]; then kill "$3"; fi
    done
}

while [ "$stopping" = 0 ]; do
    IFS=$'\t' read -r next id claim type payload < <(
        sql "select seen, id, claims, job_type, payload from rota.claim(:'queue', :'types', :'me', after => :'seen')" \
            queue="$queue" types="$types" me="$me" seen="$seen")
    seen=${next:-$seen}
    [ -n "$id" ] || { nap 1; continue; }
    "./$type" <<<"$payload" >"$said" 2>"$complaint" & program=$!
    keep "$id" "$claim" "$program" & keeper=$!
    while before=$stopping; wait "$program"; status=$?; [ "$before" != "$stopping" ]; do :; done
    kill "$keeper"; wait "$keeper" 2>/dev/null
    if [ "$status" = 0 ]; then
        say "select rota.succeed(:'id', :'claim', to_jsonb(:'said'::text))" id="$id" claim="$claim" said="$(last 1 "$said")"
    else
        say "select rota.fail(:'id', :'claim', :'kind', :'text', fatal => :'kind' = 'Exit65')" id="$id" claim="$claim" kind="Exit$status" \
            text="$(last 5 "$complaint")"
    fi
done
say "select rota.worker_leave(:'me')" me="$me"
