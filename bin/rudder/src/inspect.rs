//! `rudder inspect`

use crate::exit::{Failure, bad_input, failed, print, print_json};
use clap::Args;
use rudder_importer::{Bars, InspectError, Verify, inspect};
use std::io::ErrorKind;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "Examples:
  rudder inspect debian.dataset
  rudder inspect debian.dataset --quick --json")]
pub struct InspectArguments {
    /// A dataset directory; it may hold only some of its parts
    directory: PathBuf,
    /// Check shapes and lengths only, not every checksum
    #[arg(long)]
    quick: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &InspectArguments) -> Result<(), Failure> {
    let verify = if arguments.quick { Verify::Shapes } else { Verify::Checksums };
    let summary =
        inspect(&arguments.directory, verify, &mut Bars::default()).map_err(|error| match error {
            InspectError::Digest { .. } | InspectError::Checksum { .. } => failed(error),
            InspectError::Io { ref source, .. } if source.kind() == ErrorKind::NotFound => {
                bad_input(format!("{error}; is this a dataset? `rudder import` makes one"))
            }
            error => bad_input(error),
        })?;
    if arguments.json {
        return print_json(&summary);
    }
    print(summary)
}
