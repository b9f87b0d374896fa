//! The target directory: written under another name beside it, and renamed when all of it is on the disk.

use crate::error::{ImportError, OptionError};
use crate::options::Existing;
use rudder_graph::layout;
use rustix::fs::{CWD, RenameFlags};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A dataset while it is written. Dropped without [`Target::commit`], it removes all it wrote.
#[derive(Debug)]
pub(crate) struct Target {
    name: PathBuf,
    partial: PathBuf,
    existing: Existing,
}

/// Directory of the scratch files within the partial directory.
const SCRATCH: &str = "scratch";

impl Target {
    /// Makes `<target>.partial-<process id>`. Leftovers of processes that are gone are removed.
    pub(crate) fn create(name: &Path, existing: Existing) -> Result<Target, ImportError> {
        let file_name = name
            .file_name()
            .ok_or_else(|| OptionError::Target(name.display().to_string()))?
            .to_string_lossy()
            .into_owned();
        check_existing(name, existing)?;
        let parent = parent(name);
        fs::create_dir_all(&parent).map_err(ImportError::write(&parent))?;
        let prefix = format!("{file_name}.partial-");
        remove_orphans(&parent, &prefix);
        let partial = parent.join(format!("{prefix}{}", std::process::id()));
        fs::create_dir(&partial).map_err(ImportError::write(&partial))?;
        let target = Target { name: name.to_owned(), partial, existing };
        let scratch = target.scratch();
        fs::create_dir(&scratch).map_err(ImportError::write(&scratch))?;
        Ok(target)
    }

    /// Where scratch files go.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.partial.join(SCRATCH)
    }

    /// Where a file of the layout is written; its directory is made.
    pub(crate) fn path(&self, relative: &str) -> Result<PathBuf, ImportError> {
        let path = self.partial.join(relative);
        let directory = parent(&path);
        fs::create_dir_all(&directory).map_err(ImportError::write(&directory))?;
        Ok(path)
    }

    /// Puts everything on the disk, then gives it its name in one step.
    pub(crate) fn commit(self) -> Result<(), ImportError> {
        let scratch = self.scratch();
        fs::remove_dir_all(&scratch).map_err(ImportError::write(&scratch))?;
        sync_tree(&self.partial).map_err(ImportError::write(&self.partial))?;
        check_existing(&self.name, self.existing)?;
        self.rename().map_err(ImportError::write(&self.name))?;
        let parent = parent(&self.name);
        File::open(&parent).and_then(|directory| directory.sync_all()).map_err(ImportError::write(&parent))
        // Dropping removes what the exchange left under the partial name: the dataset that was replaced.
    }

    fn rename(&self) -> io::Result<()> {
        let flags = match self.existing {
            Existing::Replace if self.name.exists() => RenameFlags::EXCHANGE,
            _ => RenameFlags::NOREPLACE,
        };
        match rustix::fs::renameat_with(CWD, &self.partial, CWD, &self.name, flags) {
            // The file system knows no flags. A plain rename replaces nothing but an empty directory.
            Err(rustix::io::Errno::INVAL) => self.rename_in_steps(),
            result => result.map_err(io::Error::from),
        }
    }

    fn rename_in_steps(&self) -> io::Result<()> {
        if !self.name.exists() {
            return fs::rename(&self.partial, &self.name);
        }
        let mut aside = self.partial.clone().into_os_string();
        aside.push(".old");
        let aside = PathBuf::from(aside);
        fs::rename(&self.name, &aside)?;
        if let Err(error) = fs::rename(&self.partial, &self.name) {
            fs::rename(&aside, &self.name)?;
            return Err(error);
        }
        fs::remove_dir_all(&aside)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // After a commit there is nothing (or the replaced dataset); otherwise the half-written one.
        let _ = fs::remove_dir_all(&self.partial);
    }
}

fn check_existing(name: &Path, existing: Existing) -> Result<(), ImportError> {
    if fs::symlink_metadata(name).is_err() {
        return Ok(());
    }
    match existing {
        Existing::Refuse => Err(ImportError::TargetExists(name.to_owned())),
        Existing::Replace if name.join(layout::MANIFEST).is_file() => Ok(()),
        Existing::Replace => Err(ImportError::TargetForeign(name.to_owned())),
    }
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Removes partial directories whose process is gone (a killed import cannot do it itself).
fn remove_orphans(directory: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(prefix)?.parse::<u32>().ok());
        if process.is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn sync_tree(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_tree(&entry.path())?;
        } else {
            File::open(entry.path())?.sync_all()?;
        }
    }
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(target: &Target, text: &str) {
        fs::write(target.path("dataset.toml").unwrap(), text).unwrap();
        fs::write(target.path("parts/0/x.npy").unwrap(), text).unwrap();
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(directory).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_a_commit_leaves_something() {
        let home = tempfile::tempdir().unwrap();
        let name = home.path().join("deep/set");
        let target = Target::create(&name, Existing::Refuse).unwrap();
        write(&target, "one");
        fs::write(target.scratch().join("scratch-0"), "x").unwrap();
        assert!(!name.exists());
        drop(target);
        assert!(names(&home.path().join("deep")).is_empty());

        let target = Target::create(&name, Existing::Refuse).unwrap();
        write(&target, "one");
        target.commit().unwrap();
        assert_eq!(names(&home.path().join("deep")), ["set"]);
        assert_eq!(names(&name), ["dataset.toml", "parts"]);
    }

    #[test]
    fn what_exists_is_replaced_only_on_demand_and_only_if_it_is_a_dataset() {
        let home = tempfile::tempdir().unwrap();
        let name = home.path().join("set");
        fs::create_dir(&name).unwrap();
        fs::write(name.join("thesis.txt"), "mine").unwrap();
        assert!(matches!(Target::create(&name, Existing::Refuse), Err(ImportError::TargetExists(_))));
        assert!(matches!(Target::create(&name, Existing::Replace), Err(ImportError::TargetForeign(_))));
        fs::write(name.join("dataset.toml"), "old").unwrap();
        assert!(matches!(Target::create(&name, Existing::Refuse), Err(ImportError::TargetExists(_))));

        let target = Target::create(&name, Existing::Replace).unwrap();
        write(&target, "new");
        assert_eq!(fs::read_to_string(name.join("dataset.toml")).unwrap(), "old");
        target.commit().unwrap();
        assert_eq!(fs::read_to_string(name.join("dataset.toml")).unwrap(), "new");
        assert_eq!(names(home.path()), ["set"]);
    }

    #[test]
    fn a_file_system_without_flags_is_served_in_steps() {
        let home = tempfile::tempdir().unwrap();
        let name = home.path().join("set");
        for text in ["one", "two"] {
            let target = Target::create(&name, Existing::Replace).unwrap();
            write(&target, text);
            target.rename_in_steps().unwrap();
            drop(target);
            assert_eq!(fs::read_to_string(name.join("dataset.toml")).unwrap(), text);
            assert_eq!(names(home.path()), ["set"]);
        }
    }

    #[test]
    fn leftovers_of_dead_processes_go_and_others_stay() {
        let home = tempfile::tempdir().unwrap();
        // Process ids end below 2^22.
        for leftover in
            ["set.partial-4294967294", "set.partial-1", "set.partial-x", "other.partial-4294967294"]
        {
            fs::create_dir(home.path().join(leftover)).unwrap();
        }
        drop(Target::create(&home.path().join("set"), Existing::Refuse).unwrap());
        assert_eq!(names(home.path()), ["other.partial-4294967294", "set.partial-1", "set.partial-x"]);
    }

    #[test]
    fn a_target_needs_a_name() {
        assert!(matches!(Target::create(Path::new("/"), Existing::Refuse), Err(ImportError::Option(_))));
    }
}
