//! `rudder launch`

use crate::exit::{Failure, bad_input, failed};
use clap::Args;
use rudder_scenarios::run::launch::Launch;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args)]
pub struct LaunchArguments {
    /// A network namespace's file
    #[arg(long)]
    namespace: Option<PathBuf>,
    /// Process id of the starter, with which the program dies
    #[arg(long)]
    parent: i32,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

pub fn run(arguments: LaunchArguments) -> Result<(), Failure> {
    let mut command = arguments.command.into_iter();
    let program = command.next().ok_or_else(|| bad_input("name a program"))?;
    let launch = Launch {
        namespace: arguments.namespace,
        parent: arguments.parent,
        program,
        arguments: command.collect(),
    };
    Err(failed(launch.become_program()))
}
