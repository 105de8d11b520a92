//! What the hosts recorded, held to the model whose laws are proved.

use std::path::Path;
use std::process::Command;

const JUDGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/proof/judge.py");

/// Judges the recordings below a folder, each by itself: faults of the store may depose a leader, whose
/// work then goes on for a moment. Says how many terms they have.
///
/// # Errors
///
/// What is wrong with them, in a line for each.
pub fn judge(folder: &Path) -> Result<String, String> {
    let told = Command::new("python3")
        .args([JUDGE, "--each"])
        .arg(folder)
        .output()
        .map_err(|error| format!("python3, which judges the recordings: {error}"))?;
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    match told.status.success() {
        true => Ok(text),
        false => Err(text + &String::from_utf8_lossy(&told.stderr)),
    }
}
