-- The store of elections: leases, keys, their history, and the functions through which all of it is
-- read and written. Times are nanoseconds.
--
-- What changes keys happens one after the other, in the order of the revisions: it locks the one row of
-- `meta` until its commit. Renewals do not.

CREATE SCHEMA incumbent;

CREATE TABLE incumbent.meta (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    format int NOT NULL,
    revision bigint NOT NULL,
    -- The oldest revision whose changes are still known.
    compacted bigint NOT NULL,
    -- The cluster in which the store lies, and how many eras there were before its first timeline. The
    -- revisions of an era are above those of the eras before.
    cluster bigint NOT NULL,
    eras bigint NOT NULL,
    -- The longest time to live of the leases since the last compaction but one, and since the last one.
    longest bigint NOT NULL DEFAULT 0,
    granted bigint NOT NULL DEFAULT 0,
    -- When history was compacted last, by the database's clock.
    cleaned bigint NOT NULL DEFAULT 0
);

CREATE SEQUENCE incumbent.renewals;

-- The lease 0 is no candidate's: it stands for those that may have been granted or renewed on a server
-- that is lost. Until it is over, nobody gets in line.
CREATE TABLE incumbent.leases (
    id bigint PRIMARY KEY,
    ttl bigint NOT NULL,
    -- Another number with each renewal, and at the begin of an era.
    renewed bigint NOT NULL,
    -- When that was by the renewer's own clock since a start of its machine, by its wall clock, and by
    -- the database's.
    boot text NOT NULL,
    mark bigint NOT NULL,
    wall bigint NOT NULL,
    at bigint NOT NULL,
    -- When a transaction with its fence could not be ended, by the database's clock.
    fenced bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

CREATE TABLE incumbent.keys (
    key bytea PRIMARY KEY,
    value bytea NOT NULL,
    lease bigint NOT NULL,
    created bigint NOT NULL,
    modified bigint NOT NULL
);
CREATE INDEX keys_by_lease ON incumbent.keys (lease) WHERE lease <> 0;
CREATE INDEX keys_by_creation ON incumbent.keys (created);

-- Without a value: the key was deleted.
CREATE TABLE incumbent.history (
    revision bigint NOT NULL,
    part int NOT NULL,
    at bigint NOT NULL,
    key bytea NOT NULL,
    value bytea,
    lease bigint NOT NULL,
    created bigint NOT NULL,
    PRIMARY KEY (revision, part)
);

CREATE FUNCTION incumbent.now() RETURNS bigint LANGUAGE sql VOLATILE
    AS $$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 $$;

-- The timeline on which the server writes: another one since each promotion and each restored backup.
CREATE FUNCTION incumbent.timeline() RETURNS bigint LANGUAGE sql VOLATILE
    AS $$ SELECT ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint $$;

-- Whether what a server has written last was of another era.
CREATE FUNCTION incumbent.is_new_era(head incumbent.meta) RETURNS boolean LANGUAGE sql VOLATILE
    AS $$ SELECT (head).cluster <> system_identifier OR (head).revision >> 40 < (head).eras + incumbent.timeline() - 1
        FROM pg_control_system() $$;

-- Begins an era if this is another timeline, or a copy in another cluster. What is lost may be commits
-- that were acknowledged: epochs go on above all that were given out, every lease begins anew, and the
-- lease 0 keeps everybody from getting in line as long as one that was lost may live.
CREATE FUNCTION incumbent.begin_era(head incumbent.meta) RETURNS incumbent.meta LANGUAGE plpgsql AS $$
DECLARE
    here bigint := (SELECT system_identifier FROM pg_control_system());
BEGIN
    IF NOT incumbent.is_new_era(head) THEN
        RETURN head;
    END IF;
    IF head.cluster <> here THEN
        head.cluster := here;
        head.eras := (head.revision >> 40) + 1 - incumbent.timeline() + 1;
    END IF;
    head.revision := (head.eras + incumbent.timeline() - 1) << 40;
    -- Watches have heard of what is lost.
    head.compacted := head.revision + 1;
    DELETE FROM incumbent.history;
    PERFORM setval('incumbent.renewals', greatest(nextval('incumbent.renewals'), head.revision));
    UPDATE incumbent.leases SET renewed = nextval('incumbent.renewals'), boot = '';
    INSERT INTO incumbent.leases SELECT 0, longest, nextval('incumbent.renewals'), '', 0, 0, 0
        FROM greatest(head.longest, head.granted) longest WHERE longest > 0
        ON CONFLICT (id) DO UPDATE SET ttl = excluded.ttl, renewed = excluded.renewed;
    RETURN head;
END $$;

-- What is acknowledged has to be there after a crash, and on the standbys that count.
CREATE FUNCTION incumbent.wait_for_disks() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

CREATE FUNCTION incumbent.entry(it incumbent.keys, keys_only boolean DEFAULT false) RETURNS jsonb LANGUAGE sql IMMUTABLE
    AS $$ SELECT jsonb_build_array(encode(it.key, 'hex'), CASE WHEN keys_only THEN '' ELSE encode(it.value, 'hex') END, it.lease, it.created, it.modified) $$;

-- One selection, always by the key's index: that of the creation would be read from one end to the other
-- for the first key of one election. {"key", "prefix", "from", "before", "order", "limit", "bare"}.
CREATE FUNCTION incumbent.find(selection jsonb) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
    k bytea := decode(selection->>'key', 'hex');
    bare boolean := (selection->>'bare')::boolean;
    below bigint := coalesce((selection->>'before')::bigint, 9223372036854775807);
    most bigint := nullif((selection->>'limit')::bigint, 0);
    start bytea := greatest(k, decode(coalesce(selection->>'from', selection->>'key'), 'hex'));
    -- Without an end, one that is above all keys: a plan for any range uses the index only with both.
    stop bytea := coalesce(decode(selection->>'end', 'hex'), decode(repeat('ff', 2601), 'hex'));
    found jsonb;
BEGIN
    IF NOT (selection->>'prefix')::boolean THEN
        SELECT jsonb_agg(incumbent.entry(it, bare)) INTO found FROM incumbent.keys it
            WHERE key = k AND key >= start AND created < below;
    ELSIF selection->>'order' = 'key' THEN
        SELECT jsonb_agg(incumbent.entry(it, bare) ORDER BY key) INTO found FROM (
            SELECT * FROM incumbent.keys WHERE key >= start AND key < stop AND created < below
            ORDER BY key LIMIT most) it;
    ELSIF selection->>'order' = 'oldest' THEN
        SELECT jsonb_agg(incumbent.entry(it, bare) ORDER BY created, key) INTO found FROM (
            SELECT * FROM incumbent.keys WHERE key >= start AND key < stop AND created < below
            ORDER BY created + 0, key LIMIT most) it;
    ELSE
        SELECT jsonb_agg(incumbent.entry(it, bare) ORDER BY created DESC, key) INTO found FROM (
            SELECT * FROM incumbent.keys WHERE key >= start AND key < stop AND created < below
            ORDER BY created + 0 DESC, key LIMIT most) it;
    END IF;
    RETURN coalesce(found, '[]');
END $$;

CREATE FUNCTION incumbent.put(revision bigint, part int, k bytea, v bytea, l bigint) RETURNS void LANGUAGE sql AS $$
    WITH made AS (
        INSERT INTO incumbent.keys VALUES (k, v, l, revision, revision)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value, lease = excluded.lease, modified = excluded.modified
        RETURNING created
    )
    INSERT INTO incumbent.history SELECT revision, part, incumbent.now(), k, v, l, created FROM made
$$;

-- The fence: a transaction that calls it shares two locks with others until it ends, that of the epoch
-- and that of its lease. What ends an epoch takes one of them exclusively, before it deletes the key, and
-- keeps it until its own commit. So a fenced transaction commits before an epoch ends, or sees that it has
-- ended.
CREATE FUNCTION incumbent.epoch_lock(epoch bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
    AS $$ SELECT hashtextextended('incumbent', epoch) $$;
CREATE FUNCTION incumbent.lease_lock(lease bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
    AS $$ SELECT ~hashtextextended('incumbent', lease) $$;

-- Whether it is the key of a candidate of this election: its name, or that and a part more.
CREATE FUNCTION incumbent.is_of(election text, key bytea) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT key = convert_to(election, 'UTF8')
        OR substr(key, 1, octet_length(election) + 1) = convert_to(election || '/', 'UTF8')
            AND position('/'::bytea IN substr(key, octet_length(election) + 2)) = 0
$$;

-- Fails unless this is the standing epoch of the election, and will be when this transaction commits.
-- Who knows the lease that holds it spares a look. Each expression costs the transaction something, so
-- this does what is needed nearly always, and leaves the rest to another function.
CREATE FUNCTION incumbent.fence(election text, epoch bigint, holder bigint DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF holder IS NULL THEN
        SELECT lease INTO holder FROM incumbent.keys WHERE created = epoch;
    END IF;
    IF pg_try_advisory_xact_lock_shared(incumbent.lease_lock(holder))
        AND pg_try_advisory_xact_lock_shared(incumbent.epoch_lock(epoch))
    THEN
        -- Now that it cannot be deleted any more.
        PERFORM FROM incumbent.keys WHERE created = epoch AND lease = holder AND holder <> 0 AND incumbent.is_of(election, key)
            AND current_setting('transaction_isolation') = 'read committed'
            AND current_setting('max_prepared_transactions') = '0';
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    PERFORM incumbent.fence_with_care(election, epoch);
END $$;

-- The same where a takeover is under way, at each isolation level, and where transactions can be prepared.
CREATE FUNCTION incumbent.fence_with_care(election text, epoch bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    holder bigint;
BEGIN
    SELECT lease INTO holder FROM incumbent.keys WHERE created = epoch AND lease <> 0 AND incumbent.is_of(election, key);
    -- Waits only while a takeover is under way.
    IF FOUND AND NOT pg_try_advisory_xact_lock_shared(incumbent.lease_lock(holder)) THEN
        PERFORM pg_advisory_xact_lock_shared(incumbent.lease_lock(holder));
    END IF;
    IF FOUND AND NOT pg_try_advisory_xact_lock_shared(incumbent.epoch_lock(epoch)) THEN
        PERFORM pg_advisory_xact_lock_shared(incumbent.epoch_lock(epoch));
    END IF;
    IF current_setting('max_prepared_transactions') <> '0' AND current_setting('transaction_read_only') = 'off' THEN
        INSERT INTO incumbent.fences VALUES (pg_backend_pid());
    END IF;
    -- Once more, now that it cannot be deleted any more. One that only reads may not lock a row.
    IF holder IS NOT NULL AND (current_setting('transaction_isolation') = 'read committed'
        OR current_setting('transaction_read_only') = 'on')
    THEN
        PERFORM FROM incumbent.keys WHERE created = epoch AND lease = holder;
    ELSIF holder IS NOT NULL THEN
        -- This transaction sees the past: only a lock fails where the key is gone by now.
        BEGIN
            PERFORM FROM incumbent.keys WHERE created = epoch AND lease = holder FOR KEY SHARE;
        EXCEPTION WHEN serialization_failure THEN
            holder := NULL;
        END;
    END IF;
    IF NOT FOUND OR holder IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'IN001',
            MESSAGE = format('epoch %s of %s does not stand: this transaction cannot commit', epoch, election),
            HINT = 'Another instance leads by now, or nobody: end this work.';
    END IF;
END $$;

-- Where transactions can be prepared, one with a fence is refused: it would hold up every takeover.
CREATE UNLOGGED TABLE incumbent.fences (backend int NOT NULL);
CREATE FUNCTION incumbent.refuse_to_prepare() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_query() ~* '(^|;)(\s|/\*.*?\*/|--.*?\n)*prepare(\s|/\*.*?\*/|--.*?\n)+transaction\M' THEN
        RAISE EXCEPTION USING ERRCODE = 'IN002',
            MESSAGE = 'a transaction with a fence cannot be prepared: it would hold up the next leader',
            HINT = 'Commit it, or leave the fence out.';
    END IF;
    DELETE FROM incumbent.fences WHERE backend = NEW.backend;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON incumbent.fences DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION incumbent.refuse_to_prepare();

-- Takes such locks exclusively, and returns those that it has. Transactions that share them are waited for, half
-- a second for all together, and then ended. One cannot be ended that has been prepared, or whose role the
-- role of this candidate has no power over: its lock is left out.
CREATE FUNCTION incumbent.lock_out(numbers bigint[]) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    held bigint[] := '{}';
    waited_for bigint[] := '{}';
    number bigint;
    backend int;
    until timestamptz;
BEGIN
    FOREACH number IN ARRAY numbers LOOP
        IF pg_try_advisory_xact_lock(number) THEN
            held := held || number;
        ELSE
            waited_for := waited_for || number;
        END IF;
    END LOOP;
    FOR round IN 1..2 LOOP
        until := clock_timestamp() + interval '500 milliseconds';
        FOREACH number IN ARRAY waited_for LOOP
            PERFORM set_config('lock_timeout', ceil(greatest(1, 1000 * extract(epoch FROM until - clock_timestamp())))::text, true);
            BEGIN
                PERFORM pg_advisory_xact_lock(number);
                held := held || number;
                waited_for := array_remove(waited_for, number);
            EXCEPTION WHEN lock_not_available THEN
            END;
        END LOOP;
        PERFORM set_config('lock_timeout', '0', true);
        EXIT WHEN waited_for = '{}' OR round = 2;
        FOR backend IN SELECT DISTINCT pid FROM pg_locks
            WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid <> pg_backend_pid()
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (classid::bigint << 32 | objid::bigint) = ANY (waited_for)
        LOOP
            BEGIN
                PERFORM pg_terminate_backend(backend);
            EXCEPTION WHEN insufficient_privilege THEN
                RAISE WARNING 'the backend % has called the fence of an epoch that is over, and may not be ended by %', backend, current_user;
            END;
        END LOOP;
    END LOOP;
    RETURN held;
END $$;

-- Whether there was such a key.
CREATE FUNCTION incumbent.remove(revision bigint, part int, k bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM incumbent.keys WHERE key = k;
    IF FOUND THEN
        INSERT INTO incumbent.history VALUES (revision, part, incumbent.now(), k, NULL, 0, 0);
    END IF;
    RETURN FOUND;
END $$;

-- Deletes the keys of a lease that is gone, in one revision; returns that, or the last one.
CREATE FUNCTION incumbent.end_keys(revision bigint, l bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    k bytea;
    part int := 0;
BEGIN
    FOR k IN SELECT key FROM incumbent.keys WHERE lease = l AND lease <> 0 ORDER BY key LOOP
        PERFORM incumbent.remove(revision + 1, part, k);
        part := part + 1;
    END LOOP;
    RETURN revision + (part > 0)::int;
END $$;

-- Forgets changes that are older than ten minutes, once a minute and some at a time. Where the clock was
-- set, more or fewer are kept; those of the last half million revisions at most.
CREATE FUNCTION incumbent.forget(head incumbent.meta) RETURNS incumbent.meta LANGUAGE plpgsql AS $$
DECLARE
    time bigint := incumbent.now();
    second bigint := 1000000000;
    kept bigint;
    wanted bigint;
BEGIN
    IF time BETWEEN head.cleaned AND head.cleaned + 60 * second THEN
        RETURN head;
    END IF;
    SELECT revision INTO kept FROM incumbent.history WHERE at > time - 600 * second ORDER BY revision LIMIT 1;
    kept := greatest(coalesce(kept, head.revision), head.revision - 500000);
    SELECT max(revision) + 1 INTO wanted FROM (
        SELECT revision FROM incumbent.history WHERE revision < kept ORDER BY revision LIMIT 5000) it;
    IF wanted IS NULL THEN
        head.cleaned := time;
        -- A lease that was much longer than the others, and is gone, counts no more.
        head.longest := greatest(head.granted, (SELECT max(ttl) FROM incumbent.leases WHERE id <> 0), 0);
        head.granted := 0;
    ELSE
        DELETE FROM incumbent.history WHERE revision < wanted;
        head.compacted := greatest(head.compacted, wanted);
    END IF;
    RETURN head;
END $$;

-- Operations that write, one after the other, in one transaction. `over` are the leases that the caller
-- has seen to be over, with the number of the renewal that it saw: [[id, renewed], ..]. `me` says which
-- clock the caller has, and what it shows: {"boot", "mark", "wall"}.
CREATE FUNCTION incumbent.perform(operations jsonb, over jsonb, me jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    head incumbent.meta;
    before incumbent.meta;
    it jsonb;
    answer jsonb;
    answers jsonb[] := '{}';
    present incumbent.keys;
    l bigint;
    number bigint;
    wanted bigint[];
    locks bigint[];
    part int;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'this transaction has to be READ COMMITTED, and is %', upper(current_setting('transaction_isolation'));
    END IF;
    PERFORM incumbent.wait_for_disks();
    SELECT * INTO STRICT head FROM incumbent.meta FOR UPDATE;
    before := head;
    head := incumbent.begin_era(head);
    wanted := ARRAY(
        SELECT incumbent.lease_lock(id) FROM jsonb_array_elements(over) lease
        JOIN incumbent.leases ON id = (lease->>0)::bigint AND renewed = (lease->>1)::bigint
        WHERE abs(incumbent.now() - fenced) > 5000000000);
    locks := incumbent.lock_out(wanted);
    IF cardinality(locks) < cardinality(wanted) THEN
        -- They are not waited for again and again: all others would wait as well.
        UPDATE incumbent.leases SET fenced = incumbent.now()
            WHERE incumbent.lease_lock(id) = ANY (wanted) AND incumbent.lease_lock(id) <> ALL (locks);
    END IF;
    FOR it IN SELECT jsonb_array_elements(over) LOOP
        l := (it->>0)::bigint;
        -- One that cannot be had ends later: the others have their elections.
        DELETE FROM incumbent.leases
            WHERE id = l AND renewed = (it->>1)::bigint AND incumbent.lease_lock(l) = ANY (locks);
        IF FOUND THEN
            head.revision := incumbent.end_keys(head.revision, l);
        END IF;
    END LOOP;

    FOR it IN SELECT jsonb_array_elements(operations) LOOP
        CASE it->>'do'
        WHEN 'grant' THEN
            INSERT INTO incumbent.leases VALUES ((it->>'lease')::bigint, (it->>'ttl')::bigint,
                nextval('incumbent.renewals'), me->>'boot', (me->>'mark')::bigint, (me->>'wall')::bigint, incumbent.now())
            ON CONFLICT DO NOTHING RETURNING renewed INTO number;
            answer := CASE WHEN FOUND THEN jsonb_build_object('granted', number) ELSE '"exists"' END;
            IF FOUND AND (it->>'ttl')::bigint > head.granted THEN
                head.granted := (it->>'ttl')::bigint;
                -- One that was lost may have been as long.
                UPDATE incumbent.leases SET ttl = head.granted, renewed = nextval('incumbent.renewals')
                    WHERE id = 0 AND ttl < head.granted;
            END IF;
        WHEN 'revoke' THEN
            IF incumbent.lock_out(ARRAY[incumbent.lease_lock((it->>'lease')::bigint)]) = '{}' THEN
                answers := answers || '"fenced"'::jsonb;
                CONTINUE;
            END IF;
            DELETE FROM incumbent.leases WHERE id = (it->>'lease')::bigint AND id <> 0;
            answer := to_jsonb(CASE WHEN FOUND THEN 'revoked' ELSE 'expired' END);
            IF FOUND THEN
                head.revision := incumbent.end_keys(head.revision, (it->>'lease')::bigint);
            END IF;
        WHEN 'claim' THEN
            IF EXISTS (SELECT FROM incumbent.leases WHERE id = 0) THEN
                answers := answers || '"later"'::jsonb;
                CONTINUE;
            END IF;
            SELECT * INTO present FROM incumbent.keys WHERE key = decode(it->>'key', 'hex');
            IF FOUND THEN
                answer := jsonb_build_object('taken', incumbent.entry(present), 'at', head.revision);
            ELSE
                l := (it->>'lease')::bigint;
                -- Its renewals wait until this is committed, and its end as well.
                PERFORM 1 FROM incumbent.leases WHERE id = l FOR KEY SHARE;
                IF l <> 0 AND NOT FOUND THEN
                    answer := '"expired"';
                ELSE
                    head.revision := head.revision + 1;
                    PERFORM incumbent.put(head.revision, 0, decode(it->>'key', 'hex'), decode(it->>'value', 'hex'), l);
                    answer := jsonb_build_object('claimed', head.revision);
                END IF;
            END IF;
        WHEN 'read' THEN
            SELECT jsonb_build_object('at', head.revision, 'found', coalesce(jsonb_agg(incumbent.find(selection) ORDER BY n), '[]'))
                INTO answer FROM jsonb_array_elements(it->'selections') WITH ORDINALITY AS s(selection, n);
        WHEN 'guarded' THEN
            SELECT * INTO present FROM incumbent.keys WHERE key = decode(it->>'key', 'hex');
            IF NOT FOUND OR present.created <> (it->>'epoch')::bigint
                OR present.lease <> coalesce((it->>'lease')::bigint, present.lease)
            THEN
                answer := '"stale"';
            ELSIF EXISTS (
                SELECT FROM jsonb_array_elements(it->'expect') expected
                LEFT JOIN incumbent.keys k ON k.key = decode(expected->>0, 'hex')
                WHERE coalesce(k.modified, 0) <> (expected->>1)::bigint)
            THEN
                answer := '"conflict"';
            ELSE
                wanted := ARRAY(
                    SELECT incumbent.epoch_lock(k.created) FROM jsonb_array_elements(it->'changes') change
                    JOIN incumbent.keys k ON k.key = decode(change->>1, 'hex') AND k.lease <> 0
                    WHERE change->>0 = 'delete');
                IF cardinality(incumbent.lock_out(wanted)) < cardinality(wanted) THEN
                    answers := answers || '"fenced"'::jsonb;
                    CONTINUE;
                END IF;
                part := 0;
                -- ["put", key, value], ["proclaim", value], ["delete", key]
                DECLARE
                    change jsonb;
                BEGIN
                    FOR change IN SELECT jsonb_array_elements(it->'changes') LOOP
                        CASE change->>0
                        WHEN 'put' THEN
                            PERFORM incumbent.put(head.revision + 1, part, decode(change->>1, 'hex'), decode(change->>2, 'hex'), 0);
                            part := part + 1;
                        WHEN 'proclaim' THEN
                            PERFORM incumbent.put(head.revision + 1, part, present.key, decode(change->>1, 'hex'), present.lease);
                            part := part + 1;
                        WHEN 'delete' THEN
                            part := part + incumbent.remove(head.revision + 1, part, decode(change->>1, 'hex'))::int;
                        END CASE;
                    END LOOP;
                END;
                head.revision := head.revision + (part > 0)::int;
                answer := jsonb_build_object('applied', head.revision);
            END IF;
        END CASE;
        answers := answers || answer;
    END LOOP;

    IF head.revision > before.revision THEN
        head := incumbent.forget(head);
        PERFORM pg_notify('incumbent', head.revision::text);
    END IF;
    IF head <> before THEN
        UPDATE incumbent.meta SET revision = head.revision, compacted = head.compacted, cluster = head.cluster,
            eras = head.eras, longest = head.longest, granted = head.granted, cleaned = head.cleaned;
    END IF;
    RETURN to_jsonb(answers);
END $$;

-- Only reads: {"at", "found"} for each. One statement, so that all of it is of one moment.
CREATE FUNCTION incumbent.read(operations jsonb) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_agg(jsonb_build_object('at', (SELECT revision FROM incumbent.meta), 'found', (
        SELECT coalesce(jsonb_agg(incumbent.find(selection) ORDER BY m), '[]')
        FROM jsonb_array_elements(it->'selections') WITH ORDINALITY AS s(selection, m)
    )) ORDER BY n)
    FROM jsonb_array_elements(operations) WITH ORDINALITY AS o(it, n)
$$;

-- Renews leases: [ttl, renewed] for each, nothing for one that is gone. NULL in a new era, which `perform` has
-- to begin first.
CREATE FUNCTION incumbent.renew(ids bigint[], me jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    answers jsonb;
BEGIN
    IF (SELECT incumbent.is_new_era(meta) FROM incumbent.meta) THEN
        RETURN NULL;
    END IF;
    PERFORM incumbent.wait_for_disks();
    WITH renewed AS (
        UPDATE incumbent.leases SET renewed = nextval('incumbent.renewals'), boot = me->>'boot',
            mark = (me->>'mark')::bigint, wall = (me->>'wall')::bigint, at = incumbent.now()
        -- One that is over by the clock of its own machine is not renewed.
        WHERE id = ANY (ids) AND id <> 0 AND NOT (boot = me->>'boot' AND mark + ttl <= (me->>'mark')::bigint)
        RETURNING id, ttl, leases.renewed
    )
    SELECT jsonb_agg(CASE WHEN ttl IS NOT NULL THEN jsonb_build_array(ttl, renewed.renewed) END ORDER BY n) INTO answers
        FROM unnest(ids) WITH ORDINALITY AS asked(id, n) LEFT JOIN renewed USING (id);
    RETURN answers;
END $$;

-- What has happened after a revision and a renewal, and the last renewals of leases that are doubted.
CREATE FUNCTION incumbent.recent(seen bigint, heard bigint, doubted bigint[]) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT jsonb_build_object(
        'revision', revision, 'compacted', compacted, 'now', incumbent.now(),
        'changes', CASE WHEN revision > seen THEN (
            SELECT jsonb_agg(jsonb_build_array(h.revision, encode(key, 'hex'), encode(value, 'hex'), lease, created) ORDER BY h.revision, part)
            FROM incumbent.history h WHERE h.revision > seen) END,
        'leases', (
            SELECT jsonb_agg(jsonb_build_array(id, ttl, renewed, boot, mark, wall, at))
            FROM incumbent.leases WHERE renewed > heard OR id = ANY (doubted)))
    FROM incumbent.meta
$$;

INSERT INTO incumbent.meta SELECT true, 1, 1, 0, system_identifier, 1 - incumbent.timeline() FROM pg_control_system();
