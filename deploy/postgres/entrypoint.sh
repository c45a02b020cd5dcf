#!/bin/sh
# Makes the cluster, its superuser POSTGRES_USER with POSTGRES_PASSWORD (or what the file POSTGRES_PASSWORD_FILE holds) and
# the database POSTGRES_DB at the first start.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    umask 077
    password=$(mktemp)
    printf '%s\n' "${POSTGRES_PASSWORD:-$(cat "${POSTGRES_PASSWORD_FILE:?or POSTGRES_PASSWORD}")}" >"$password"
    initdb --username="$POSTGRES_USER" --pwfile="$password" --auth-local=trust --auth-host=scram-sha-256 \
        --encoding=UTF8 --locale=C.UTF-8
    rm "$password"
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    # No address to listen on yet, so that nobody takes the database for ready before it is there.
    pg_ctl -w -o "-c listen_addresses=''" start
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB" || [ "$POSTGRES_DB" = postgres ]
    pg_ctl -w stop
fi
exec "$@" -c listen_addresses='*'
