#!/bin/sh
# Runs once, when the database is made: the application's role, which owns its database and is no superuser.
set -eu
: "${PASSWORD_FILE:=/run/secrets/database_password}"
export PASSWORD_FILE
psql --no-psqlrc --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
\set password `cat "$PASSWORD_FILE"`
CREATE ROLE wardround LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD :'password';
ALTER DATABASE wardround OWNER TO wardround;
SQL
