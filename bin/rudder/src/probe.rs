//! `rudder probe`

use crate::exit::{Failure, bad_input, failed};
use clap::Args;
use rudder_scenarios::run::probe::{listen, send};
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Args)]
pub struct ProbeArguments {
    /// Receive one connection here and count
    #[arg(long, conflicts_with = "send")]
    listen: Option<SocketAddr>,
    /// Send there
    #[arg(long)]
    send: Option<SocketAddr>,
    /// For this long
    #[arg(long, default_value_t = 700)]
    ms: u64,
}

pub fn run(arguments: &ProbeArguments) -> Result<(), Failure> {
    match (arguments.listen, arguments.send) {
        (Some(address), _) => listen(address, &mut |event| {
            let line = serde_json::to_string(&event).unwrap_or_default();
            let mut stdout = std::io::stdout().lock();
            let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
        })
        .map_err(failed),
        (None, Some(address)) => send(address, Duration::from_millis(arguments.ms)).map_err(failed),
        (None, None) => Err(bad_input("give --listen or --send")),
    }
}
