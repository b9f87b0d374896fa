//! Logs on standard error, for people or for machines; panics of actors are one line of it.

use crate::arguments::LogFormat;
use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Levels come from `RUST_LOG`, `info` where it says nothing. The control plane's library would print payloads at
/// debug level, and warns of every session that ends: it is held at errors, whatever is asked for.
pub fn start(format: LogFormat) {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).from_env_lossy();
    let quiet = ["ractor_cluster=error", "ractor=warn"].into_iter().filter_map(|text| text.parse().ok());
    let filter = quiet.fold(filter, EnvFilter::add_directive);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Human => builder.with_target(false).with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().init(),
    }
    std::panic::set_hook(Box::new(log_panic));
}

fn log_panic(info: &PanicHookInfo<'_>) {
    let message = info.payload_as_str().unwrap_or("no message");
    let place = info.location().map_or_else(|| "unknown place".to_owned(), ToString::to_string);
    let thread = std::thread::current();
    tracing::error!(thread = thread.name().unwrap_or("unnamed"), %place, "panic: {message}");
}
