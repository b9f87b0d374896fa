//! How a command ends when it does not end well.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

/// A message for people, and the exit code for programs.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

/// It failed: exit code 1.
pub fn failed(reason: impl Display) -> Failure {
    Failure { code: 1, message: reason.to_string() }
}

/// What was given is wrong: exit code 2.
pub fn bad_input(reason: impl Display) -> Failure {
    Failure { code: 2, message: reason.to_string() }
}

impl Failure {
    pub fn report(self) -> ExitCode {
        eprintln!("rudder: {}", self.message);
        ExitCode::from(self.code)
    }
}

/// Prints a value as JSON on standard output.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(failed)?;
    say(text)
}

/// Writes a file.
pub fn save(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| failed(format!("cannot write {}: {error}", path.display())))
}

/// Writes a value to a file as JSON.
pub fn save_json(path: &Path, value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(failed)?;
    save(path, &(text + "\n"))
}

/// Prints a line on standard output. A reader that has gone, such as `head`, has seen enough: that is no failure.
pub fn say(text: impl Display) -> Result<(), Failure> {
    write(format_args!("{text}\n"))
}

/// Prints text that ends its lines itself, as [`say`] does.
pub fn print(text: impl Display) -> Result<(), Failure> {
    write(format_args!("{text}"))
}

fn write(text: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| failed(format!("cannot write to standard output: {error}"))),
    }
}
