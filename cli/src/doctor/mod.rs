//! `warpwright doctor`: what this machine has, what it lacks, and what helps.

mod checkout;
mod checks;

use serde::Serialize;

use crate::error::CliError;
use crate::output;

#[derive(clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What came of one check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    pub name: String,
    pub status: Status,
    pub detail: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    /// Something that is not there and not needed to run.
    Note,
    /// Something that is there and cannot be used, or could not be found out.
    Warning,
    /// Something that makes results wrong.
    Failed,
}

impl Check {
    pub fn ok(name: impl Into<String>, detail: impl Into<String>) -> Check {
        Check { name: name.into(), status: Status::Ok, detail: detail.into(), remedy: None }
    }

    pub fn with(self, status: Status, remedy: impl Into<String>) -> Check {
        Check { status, remedy: Some(remedy.into()), ..self }
    }
}

#[derive(Serialize)]
struct Report<'a> {
    version: &'static str,
    healthy: bool,
    checks: &'a [Check],
}

pub fn run(args: &Args) -> Result<(), CliError> {
    let checks = checks::all();
    let failed = checks.iter().filter(|check| check.status == Status::Failed).count();
    if args.json {
        output::print_json(&Report {
            version: env!("CARGO_PKG_VERSION"),
            healthy: failed == 0,
            checks: &checks,
        })?;
    } else {
        output::print(&checks.iter().map(describe).collect::<String>())?;
    }
    match failed {
        0 => Ok(()),
        _ => Err(CliError::Unhealthy { failed, all: checks.len() }),
    }
}

fn describe(check: &Check) -> String {
    let status = match check.status {
        Status::Ok => "ok",
        Status::Note => "note",
        Status::Warning => "warning",
        Status::Failed => "FAILED",
    };
    let remedy = check.remedy.as_ref().map_or_else(String::new, |remedy| format!("; {remedy}"));
    let detail = check.detail.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    format!("{status:<8} {:<20} {detail}{remedy}\n", check.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_takes_one_line_with_its_remedy() {
        let check = Check::ok("ptxas", "not\nfound").with(Status::Note, "pip install it");
        assert_eq!(describe(&check), "note     ptxas                not found; pip install it\n");
        assert_eq!(describe(&Check::ok("a", "b")), "ok       a                    b\n");
    }
}
