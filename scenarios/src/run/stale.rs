//! What killed runners leave: its name carries the runner's process id, so the next one knows and removes it.

use std::fs;
use std::path::Path;

const PREFIX: &str = "rudder-scenario-";

/// How names of this process's things begin.
#[must_use]
pub(super) fn prefix() -> String {
    format!("{PREFIX}{}-", std::process::id())
}

/// Whether a name is a scenario's whose runner is gone.
#[must_use]
pub(super) fn is_stale(name: &str) -> bool {
    runner_of(name).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

/// Removes run folders of runners that are gone.
pub(super) fn remove_folders(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && entry.file_name().to_str().is_some_and(is_stale) {
            // Somebody else's folder stays: it cannot be removed, and need not be.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The process id in a name, if the name is a scenario's.
fn runner_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runner_is_in_the_name() {
        for (name, runner) in [
            ("rudder-scenario-123-0-bridge", Some(123)),
            ("rudder-scenario-7-1-0", Some(7)),
            ("rudder-scenario-x", None),
            ("other-123-0", None),
            ("", None),
        ] {
            assert_eq!(runner_of(name), runner, "{name}");
        }
    }

    #[test]
    fn only_what_dead_runners_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        // No process has this id: the kernel's largest is 2^22.
        let names = [format!("{PREFIX}4194999-x"), format!("{}x", prefix()), "other".to_owned()];
        for name in &names {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        remove_folders(parent.path());
        let left: Vec<bool> = names.iter().map(|name| parent.path().join(name).exists()).collect();
        assert_eq!(left, [false, true, true]);
    }
}
