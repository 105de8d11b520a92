//! The password file of libpq: lines of `HOST:PORT:DATABASE:USER:PASSWORD`, of which the first that
//! fits counts. `*` fits everything, and a backslash stands before a colon or a backslash.

use std::path::PathBuf;

/// Where it is: `passfile` in the URL, else `PGPASSFILE`, else `~/.pgpass`.
pub(super) fn place(given: Option<&str>) -> Option<PathBuf> {
    let given = given.map(PathBuf::from);
    let named = || std::env::var_os("PGPASSFILE").filter(|path| !path.is_empty()).map(Into::into);
    let of_user = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".pgpass"));
    given.or_else(named).or_else(of_user)
}

/// The password for such a login. `login` is host, port, database and user.
pub(super) fn find(text: &str, login: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut rest = line.chars();
        for wanted in login {
            let field = field(&mut rest)?;
            // A star that was written with a backslash is not told apart, as in libpq's own.
            if field != "*" && field != wanted {
                return None;
            }
        }
        let mut password = String::new();
        while let Some(sign) = rest.next() {
            password.push(if sign == '\\' { rest.next()? } else { sign });
        }
        (!password.is_empty()).then_some(password)
    })
}

/// Up to the next colon. None if there is none.
fn field(rest: &mut std::str::Chars<'_>) -> Option<String> {
    let mut field = String::new();
    loop {
        match rest.next()? {
            ':' => return Some(field),
            '\\' => field.push(rest.next()?),
            sign => field.push(sign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_counts() {
        let text = "# mine\n\
                    db:5432:jobs:ann:one\n\
                    db:5432:*:bob:t\\:w\\\\o\n\
                    \\:\\:1:*:*:ann:three\n\
                    broken\n\
                    *:*:*:*:last\n";
        let password = |host, user| find(text, [host, "5432", "jobs", user]);
        assert_eq!(password("db", "ann").as_deref(), Some("one"));
        assert_eq!(password("db", "bob").as_deref(), Some("t:w\\o"));
        assert_eq!(password("::1", "ann").as_deref(), Some("three"));
        assert_eq!(password("db", "eve").as_deref(), Some("last"));
        assert_eq!(find("db:5432:jobs:ann:", ["db", "5432", "jobs", "ann"]), None);
        assert_eq!(find("", ["db", "5432", "jobs", "ann"]), None);
    }
}
