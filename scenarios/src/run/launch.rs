//! `rudder launch`: becomes another program inside a node's network namespace, and dies with the process that
//! started it, however that one ends.

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// What to become, and where.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The namespace's file, such as `/run/netns/NAME`.
    pub namespace: Option<PathBuf>,
    /// Process id of the starter.
    pub parent: i32,
    pub program: OsString,
    pub arguments: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("cannot enter the network namespace {namespace}: {source}")]
    Namespace { namespace: PathBuf, source: std::io::Error },
    #[error("cannot tie this process to its parent: {0}")]
    Tie(#[source] std::io::Error),
    #[error("the process that started this one is gone")]
    Orphan,
    #[error("cannot start {program:?}: {source}")]
    Program { program: OsString, source: std::io::Error },
}

impl Launch {
    /// Does not return where all goes well.
    #[must_use]
    pub fn become_program(self) -> LaunchError {
        match self.prepare() {
            Err(error) => error,
            Ok(()) => {
                let source = Command::new(&self.program).args(&self.arguments).exec();
                LaunchError::Program { program: self.program, source }
            }
        }
    }

    fn prepare(&self) -> Result<(), LaunchError> {
        if let Some(namespace) = &self.namespace {
            let refuse = |source| LaunchError::Namespace { namespace: namespace.clone(), source };
            let file = File::open(namespace).map_err(refuse)?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|errno| refuse(errno.into()))?;
        }
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|errno| LaunchError::Tie(errno.into()))?;
        // The parent may have gone before its death could be signalled.
        match getppid() {
            Some(parent) if parent.as_raw_nonzero().get() == self.parent => Ok(()),
            _ => Err(LaunchError::Orphan),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_does_not_start_and_a_missing_namespace_is_named() {
        let launch = Launch {
            namespace: Some("no/such/namespace".into()),
            parent: 0,
            program: "true".into(),
            arguments: Vec::new(),
        };
        assert!(matches!(launch.become_program(), LaunchError::Namespace { .. }));
    }
}
