//! The schema that holds the store: whether it is there, and how it is made.

use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::{Client, Error};

use super::access::Access;
use super::failure::Trouble;
use crate::store::connect_error::ConnectError;
use crate::store::url::PostgresUrl;

const SCHEMA: &str = include_str!("schema.sql");
/// That of `schema.sql`. Another one is of another version of Incumbent.
const FORMAT: i32 = 1;

/// The functions that are called from outside.
const CALLED: &str = "'perform(jsonb, jsonb, jsonb)', 'read(jsonb)', 'renew(bigint[], jsonb)', \
     'recent(bigint, bigint, bigint[])', 'fence(text, bigint, bigint)'";

/// Statements for another schema than that of `schema.sql`.
pub(super) fn in_schema(statements: &str, schema: &str) -> String {
    let statements = statements.replace("incumbent.", &format!("{schema}."));
    let statements = statements.replace("SCHEMA incumbent", &format!("SCHEMA {schema}"));
    let statements = statements.replace("NOTIFY incumbent", &format!("NOTIFY {schema}"));
    statements.replace("'incumbent'", &format!("'{schema}'"))
}

/// The statements that make the schema.
pub(super) fn statements(schema: &str) -> String {
    in_schema(SCHEMA, schema)
}

/// The statements that give a role what a candidate needs, and no more.
pub(super) fn grants(schema: &str, role: &str) -> String {
    let role = format!("\"{}\"", role.replace('"', "\"\""));
    format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role};\n\
         GRANT SELECT, UPDATE ON {schema}.meta TO {role};\n\
         GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.leases, {schema}.keys TO {role};\n\
         GRANT SELECT, INSERT, DELETE ON {schema}.history TO {role};\n\
         GRANT SELECT, INSERT, DELETE ON {schema}.fences TO {role};\n\
         GRANT SELECT, USAGE, UPDATE ON SEQUENCE {schema}.renewals TO {role};\n"
    )
}

/// A connection to a database that is fit to be a store.
pub(super) async fn connect(access: &Access) -> Result<Client, Trouble> {
    let client = access.connect(None).await?;
    prepare(&client, &access.url).await?;
    Ok(client)
}

/// Makes the schema if it is not there and the user may, and makes sure that it can be used.
async fn prepare(client: &Client, url: &PostgresUrl) -> Result<(), Trouble> {
    let schema = url.schema();
    let unfit = |reason| ConnectError::NoStore { store: url.to_string(), reason };
    let there = format!(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace \
         WHERE nspname = '{schema}' AND relname = 'meta'), current_user::text"
    );
    let row = client.query_typed_one(&there, &[]).await?;
    let (is_there, user): (bool, String) = (row.try_get(0)?, row.try_get(1)?);
    if !is_there {
        make(client, schema).await.map_err(|error| match error.code() {
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Trouble::from(unfit(format!(
                "there is no schema {schema}, and the user {user} may not make it: have the \
                 statements run that `incumbent sql --role {user}` prints for this --store"
            ))),
            // The schema is there, with other things in it.
            Some(&SqlState::DUPLICATE_SCHEMA) => unfit(format!(
                "its schema {schema} holds no store: name another one in the URL, as in \
                 ?schema=elections"
            ))
            .into(),
            _ => error.into(),
        })?;
    }
    let not_whole = |what: &str| {
        Trouble::from(unfit(format!(
            "its schema {schema} is not whole ({what}): restore it from a backup, or name \
             another schema in the URL, as in ?schema=incumbent2"
        )))
    };
    let format = client.query_typed(&format!("SELECT format FROM {schema}.meta"), &[]).await;
    let format: i32 = match format {
        Ok(rows) => match rows.first() {
            Some(row) => row.try_get(0)?,
            None => return Err(not_whole("its table meta is empty")),
        },
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            return Err(denied(&user, schema, &unfit));
        }
        Err(error) => return Err(error.into()),
    };
    if format != FORMAT {
        return Err(unfit(format!(
            "its schema {schema} is of another version of Incumbent (its format is {format}, and \
             this program's {FORMAT}): use that version, or name another schema in the URL, as in \
             ?schema=incumbent{FORMAT}"
        ))
        .into());
    }
    let may = format!(
        "SELECT has_table_privilege('{schema}.meta', 'UPDATE') \
         AND has_table_privilege('{schema}.leases', 'INSERT') \
         AND has_table_privilege('{schema}.leases', 'UPDATE') \
         AND has_table_privilege('{schema}.leases', 'DELETE') \
         AND has_table_privilege('{schema}.keys', 'INSERT') \
         AND has_table_privilege('{schema}.keys', 'UPDATE') \
         AND has_table_privilege('{schema}.keys', 'DELETE') \
         AND has_table_privilege('{schema}.history', 'INSERT') \
         AND has_table_privilege('{schema}.history', 'DELETE') \
         AND has_sequence_privilege('{schema}.renewals', 'UPDATE'), \
         (SELECT min(name) FROM unnest(ARRAY[{CALLED}]) name \
         WHERE to_regprocedure('{schema}.' || name) IS NULL)"
    );
    let row = match client.query_typed_one(&may, &[]).await {
        Ok(row) => row,
        Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => {
            let said = error.as_db_error().map(DbError::message).unwrap_or_default();
            return Err(not_whole(said));
        }
        Err(error) => return Err(error.into()),
    };
    let (may, missing): (bool, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
    match missing {
        _ if !may => Err(denied(&user, schema, &unfit)),
        Some(missing) => Err(not_whole(&format!("there is no function {missing}"))),
        None => Ok(()),
    }
}

fn denied(user: &str, schema: &str, unfit: &impl Fn(String) -> ConnectError) -> Trouble {
    unfit(format!(
        "the user {user} may not use its schema {schema}: have the statements run that `incumbent \
         sql --role {user}` prints for this --store as its GRANT lines"
    ))
    .into()
}

/// One of several that try makes it. The owner's time-outs do not end the wait for that one.
async fn make(client: &Client, schema: &str) -> Result<(), Error> {
    let locked = format!(
        "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; \
         SELECT pg_advisory_xact_lock(hashtext('incumbent {schema}')); \
         DO $do$ BEGIN IF to_regclass('{schema}.meta') IS NULL THEN EXECUTE $incumbent${}$incumbent$; \
         END IF; END $do$; COMMIT",
        statements(schema)
    );
    let made = client.batch_execute(&locked).await;
    if made.is_err() {
        let _ = client.batch_execute("ROLLBACK").await;
    }
    made
}
