//! `incumbent sql`: prints the statements that make the schema of a store in PostgreSQL.

use incumbent::{PostgresStore, StoreUrl};

use super::args::{Common, Sql};
use super::exit::{End, Status, bad_input};
use super::output::print;

/// The schema, unless the store's URL names another one.
const SCHEMA: &str = "incumbent";

pub fn sql(common: &Common, sql: &Sql) -> Result<Status, End> {
    let schema = match &common.store {
        None => SCHEMA,
        Some(StoreUrl::Postgres(url)) => url.schema(),
        Some(other) => {
            return Err(bad_input(format!(
                "--store {other} has no schema: give a postgres://HOST/DATABASE?schema=NAME, or no \
                 --store for the schema {SCHEMA}"
            )));
        }
    };
    if sql.role.as_ref().is_some_and(|role| role.is_empty() || role.contains('\0')) {
        return Err(bad_input("--role is no name: give the role that candidates log in as"));
    }
    let text = PostgresStore::schema(schema, sql.role.as_deref());
    print(text.trim_end().to_owned())
}
