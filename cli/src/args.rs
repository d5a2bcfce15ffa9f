//! The command line.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::error::{CliError, quoted};
use crate::{bench, demo, doctor, explain, list, ops, profile, run};

#[derive(Parser)]
#[command(name = "warpwright", version, about = "Fused deep-learning GPU kernels in pure Rust")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run an operation on tensors of safetensors files
    #[command(after_help = ops::help())]
    Run(run::Args),
    /// List the operations and their kernels
    List(list::Args),
    /// Check what this machine has and what it lacks
    Doctor(doctor::Args),
    /// Check every operation against a float64 reference, and time it
    Demo(demo::Args),
    /// Time the operations on a GPU against a copy, and against another library
    Bench(bench::Args),
    /// Show what each kernel of an operation costs, as a table or a trace
    Profile(profile::Args),
    /// Tell how an operation would go about a problem
    Explain(explain::Args),
}

/// What a command line comes to.
pub enum Parsed {
    Command(Command),
    /// `--help` or `--version`: the text to print.
    Help(String),
    Wrong(CliError),
}

pub fn parse(line: impl IntoIterator<Item = OsString>) -> Parsed {
    let line: Vec<OsString> = line.into_iter().collect();
    let parsed =
        Cli::command().try_get_matches_from(&line).and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => Parsed::Command(cli.command),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Parsed::Help(error.render().to_string())
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let command = named_by(&line);
            let names =
                quoted(command.get_subcommands().map(clap::Command::get_name)).replace(" and ", " or ");
            let (what, whole) = match command.get_name() {
                "warpwright" => ("a command", "warpwright".to_owned()),
                name => ("an operation", format!("warpwright {name}")),
            };
            Parsed::Wrong(CliError::CommandLine(format!(
                "{what} is required: {names} (see `{whole} --help`)"
            )))
        }
        Err(error) => Parsed::Wrong(CliError::CommandLine(one_line(&error.render().to_string()))),
    }
}

/// The command that a line's first words name.
fn named_by(line: &[OsString]) -> clap::Command {
    line.iter().skip(1).fold(Cli::command(), |command, word| match command.find_subcommand(word) {
        Some(named) => named.clone(),
        None => command,
    })
}

/// clap's message without the usage that follows it.
fn one_line(message: &str) -> String {
    let paragraphs = message.split("\n\n").map(|paragraph| {
        let lines: Vec<&str> = paragraph.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        lines.join(" ")
    });
    let told = |text: &String| {
        !text.is_empty() && !text.starts_with("Usage:") && !text.starts_with("For more information")
    };
    let text = paragraphs.filter(told).collect::<Vec<_>>().join("; ");
    format!("{} (see `warpwright --help`)", text.strip_prefix("error: ").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Parsed {
        parse(line.split(' ').map(OsString::from))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn documented_lines_are_accepted() {
        for line in [
            "warpwright run masked_softmax --device cpu --in a --in b --out c --set scale=0.125 --set causal=true",
            "warpwright run masked_softmax --in a --out c --set scale=-1 causal=true causal_offset=-3",
            "warpwright list --json",
            "warpwright doctor --json",
            "warpwright demo --device cuda:1 --json --data d",
            "warpwright bench",
            "warpwright explain linear 3072 4096 1024 --device cpu",
            "warpwright explain attention_scores 384 384 64 --heads 128 --mask bias",
            "warpwright explain matmul 384 384 64 --batch 128 --dtype f16 --transpose-b",
            "warpwright explain permute --shape 8192,8192 --dims -1,0 --dtype i8",
            "warpwright explain permute --shape 4,5 --dims 1,0 --dtype f32 --to bf16 --rate 3000",
            "warpwright bench masked_softmax --quick --against torch --report out.html",
            "warpwright profile embedding_backward --json --trace out.json --dtype bf16 --only x768 --calls 3",
        ] {
            assert!(matches!(parse_words(line), Parsed::Command(_)), "{line}");
        }
    }

    #[test]
    fn mistakes_take_one_line() {
        for (line, want) in [
            (
                "warpwright",
                "a command is required: `run`, `list`, `doctor`, `demo`, `bench`, `profile` or `explain`",
            ),
            ("warpwright lst", "unrecognized subcommand 'lst'; tip: a similar subcommand exists: 'list'"),
            ("warpwright run x --in a", "the following required arguments were not provided: --out <FILE>"),
            (
                "warpwright explain matmul 4 4 4 --dtype i8",
                "invalid value 'i8' for '--dtype <DTYPE>' [possible values: f32, f16, bf16]",
            ),
            (
                "warpwright explain matmul -1 4 4",
                "invalid value '-1' for '<M>': invalid digit found in string",
            ),
            ("warpwright bench --size -1", "invalid value '-1' for '--size <MIB>': -1 is not in 1..=65536"),
            (
                "warpwright list --jsn",
                "unexpected argument '--jsn' found; tip: a similar argument exists: '--json'",
            ),
        ] {
            let Parsed::Wrong(error) = parse_words(line) else { panic!("{line} is accepted") };
            assert_eq!(error.to_string(), format!("{want} (see `warpwright --help`)"));
            assert_eq!(error.exit_status(), 2);
        }
        let Parsed::Wrong(error) = parse_words("warpwright explain") else { panic!("it needs an operation") };
        let error = error.to_string();
        assert!(error.starts_with("an operation is required: `matmul`, `linear`, "), "{error}");
        assert!(error.ends_with(" (see `warpwright explain --help`)"), "{error}");
    }
}
