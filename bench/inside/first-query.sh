#!/bin/sh
# PostgreSQL's server, up to its first query. It says by a line when it takes connections: nothing here polls it.
bin=$(echo /usr/lib/postgresql/*/bin)
mkfifo /tmp/log
"$bin/postgres" -D /srv/data -k /tmp -c listen_addresses= > /tmp/log 2>&1 &
while read -r line; do
  case $line in *"ready to accept connections"*) break ;; esac
done < /tmp/log
"$bin/psql" -h /tmp -d postgres -Atc "select 'ready ' || count(*) from pg_class"
kill -INT $!
