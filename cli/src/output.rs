//! Writing to the terminal without panics: a closed pipe is an error on stdout and of no matter on stderr.

use std::io::Write;

use serde::Serialize;

use crate::error::CliError;

/// Writes to stdout, and ends the last line.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    write!(out, "{text}{end}").and_then(|()| out.flush()).map_err(|source| CliError::Stdout { source })
}

pub fn print_json(report: &impl Serialize) -> Result<(), CliError> {
    print(&serde_json::to_string_pretty(report).map_err(|source| CliError::Json { source })?)
}

/// Writes a line to stderr.
pub fn note(line: &str) {
    // Nobody is left to be told of a failure.
    let _ = writeln!(std::io::stderr(), "{line}");
}
