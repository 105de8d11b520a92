//! The place of a store in a file. The library has refused what cannot be one.

use std::fs;
use std::path::Path;

use incumbent::StoreUrl;

use super::super::session::who_may_lock;
use super::Finding;

/// File systems that do not outlive a restart of the machine, or of the container.
const VOLATILE: &[(&str, &str)] = &[
    ("tmpfs", "is in memory, and a restart of the machine loses it"),
    ("ramfs", "is in memory, and a restart of the machine loses it"),
    ("overlay", "is in the layer of a container, which ends with it"),
];

pub(super) fn findings(store: &StoreUrl) -> Vec<Finding> {
    let Ok(Some(file)) = store.path() else { return Vec::new() };
    let file = fs::canonicalize(&file).unwrap_or(file);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let kind = file_system(&mounts, &file).unwrap_or_else(|| "unknown".into());
    let shown = file.display();
    let volatile = VOLATILE.iter().find(|(name, _)| *name == kind);
    let place = match volatile {
        Some((_, why)) => Finding::warning(
            "file",
            format!(
                "the store {shown} {why} ({kind}), with the epochs, which then begin anew: name a \
             file on a disk"
            ),
        ),
        None => Finding::fine(
            "file",
            format!(
                "the store is the file {shown}, which can be written, on a local file system ({kind})"
            ),
        ),
    };
    let place = place.with("file", shown.to_string()).with("file_system", kind);
    [
        Some(place),
        who_may_lock(&file).map(|who| Finding::warning("file", format!("the file {shown}: {who}"))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The kind of the file system that holds a file: that of the last mount over the deepest of its
/// directories.
fn file_system(mounts: &str, file: &Path) -> Option<String> {
    let mount = |line: &str| {
        let (place, kind) = line.split_once(" - ")?;
        // Spaces are escaped.
        let directory = place.split(' ').nth(4)?.replace("\\040", " ");
        Some((directory, kind.split(' ').next()?.to_owned()))
    };
    let holds = |(directory, _): &(String, String)| file.starts_with(directory);
    let mounts = mounts.lines().filter_map(mount).filter(holds);
    mounts.max_by_key(|(directory, _)| directory.len()).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_tells_the_file_system() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
                      2 1 0:2 / /run rw shared:1 - tmpfs tmpfs rw\n\
                      3 1 0:3 / /my\\040data rw - xfs /dev/sdb rw\n";
        for (file, kind) in
            [("/var/x", "ext4"), ("/run/x", "tmpfs"), ("/running", "ext4"), ("/my data/x", "xfs")]
        {
            assert_eq!(file_system(mounts, Path::new(file)).as_deref(), Some(kind), "{file}");
        }
        assert_eq!(file_system("", Path::new("/x")), None);
    }
}
