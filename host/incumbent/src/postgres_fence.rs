//! The fence in SQL.

use std::fmt;

/// A statement that a transaction in the same PostgreSQL executes, at any place: it then commits only
/// if the term's epoch stands at its commit. Otherwise the statement fails, with the SQLSTATE `IN001`.
///
/// With tokio-postgres:
///
/// ```ignore
/// let transaction = client.transaction().await?;
/// transaction.execute(fence.statement(), &[&fence.election(), &fence.epoch()]).await?;
/// transaction.execute("UPDATE jobs SET done = true WHERE id = $1", &[&id]).await?;
/// transaction.commit().await?;
/// ```
///
/// With sqlx:
///
/// ```ignore
/// let mut transaction = pool.begin().await?;
/// let statement = sqlx::query(fence.statement()).bind(fence.election()).bind(fence.epoch());
/// statement.execute(&mut *transaction).await?;
/// ```
///
/// Anything else may execute the text that it is shown as: `SELECT incumbent.fence('my-service', 42, 7)`,
/// where 7 is the lease that holds the term. Without the lease it means the same, and takes longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresFence {
    pub(crate) statement: String,
    pub(crate) election: String,
    pub(crate) epoch: i64,
}

impl PostgresFence {
    /// With two parameters, of the types `text` and `bigint`.
    pub fn statement(&self) -> &str {
        &self.statement
    }

    /// The first parameter.
    pub fn election(&self) -> &str {
        &self.election
    }

    /// The second parameter.
    pub fn epoch(&self) -> i64 {
        self.epoch
    }
}

/// The statement with its parameters inside.
impl fmt::Display for PostgresFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A literal in which backslashes mean nothing or themselves, whatever the session has set.
        let name = self.election.replace('\'', "''");
        let name = if name.contains('\\') {
            format!("E'{}'", name.replace('\\', "\\\\"))
        } else {
            format!("'{name}'")
        };
        let (before, after) = self.statement.split_once("$1, $2").unwrap_or_default();
        write!(f, "{before}{name}, {}{after}", self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_quoted() {
        for (election, shown) in [
            ("my-service", "SELECT s.fence('my-service', 42, 7)"),
            ("it's", "SELECT s.fence('it''s', 42, 7)"),
            (r"a\b", r"SELECT s.fence(E'a\\b', 42, 7)"),
        ] {
            let statement = "SELECT s.fence($1, $2, 7)".to_owned();
            let fence = PostgresFence { statement, election: election.into(), epoch: 42 };
            assert_eq!(fence.to_string(), shown);
        }
    }
}
