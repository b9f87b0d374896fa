//! `rudder inspect`

use crate::exit::{Failure, failed, print_json};
use clap::Args;
use rudder_importer::{Bars, Verify, inspect};
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
    let summary = inspect(&arguments.directory, verify, &mut Bars::default()).map_err(failed)?;
    if arguments.json {
        return print_json(&summary);
    }
    print!("{summary}");
    Ok(())
}
