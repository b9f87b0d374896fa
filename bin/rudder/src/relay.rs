//! `rudder relay`

use crate::exit::{Failure, bad_input, failed};
use clap::Args;
use rudder_scenarios::relay::{LinkShape, run as serve};

#[derive(Args)]
#[command(
    after_help = "Routes come as lines of JSON on standard input, and each is answered with the address to dial:
  {\"from\":\"c0\",\"to\":\"s0\",\"target\":\"127.0.0.1:7001\"}
  {\"event\":\"route\",\"listen\":\"127.0.0.1:41234\"}

Example:
  rudder relay --rate 50Mbit/s --burst 16KiB --latency 1ms"
)]
pub struct RelayArguments {
    /// Of each node, each way, such as 50Mbit/s
    #[arg(long)]
    rate: String,
    /// What an idle link lets pass at once
    #[arg(long, default_value = "16KiB")]
    burst: String,
    /// One way
    #[arg(long, default_value = "0ms")]
    latency: String,
}

pub fn run(arguments: &RelayArguments) -> Result<(), Failure> {
    let shape = LinkShape {
        rate: arguments.rate.parse().map_err(bad_input)?,
        burst: arguments.burst.parse().map_err(bad_input)?,
        latency: arguments.latency.parse().map_err(bad_input)?,
    };
    serve(shape).map_err(failed)
}
