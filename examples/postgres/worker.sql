-- Does the jobs in a table, by psql alone, each in a transaction that commits only while this instance
-- leads:
--
--   incumbent run jobs --store postgres://worker@db.example/work -- \
--     sh -c 'exec psql -Xqt -v ON_ERROR_STOP=1 -f worker.sql "$INCUMBENT_DATABASE_URL"'

\getenv fence INCUMBENT_FENCE_SQL
\getenv epoch INCUMBENT_EPOCH

-- All of it at once, again and again, until it fails.
BEGIN \;
:fence \;
UPDATE jobs SET done_in = :epoch WHERE id = (SELECT min(id) FROM jobs WHERE done_in IS NULL)
    RETURNING id, what, done_in AS epoch \;
COMMIT \watch 0.1
