//! How a command ends when it does not end well.

use std::fmt::Display;
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
    println!("{text}");
    Ok(())
}
