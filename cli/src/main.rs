//! The `warpwright` command: checks the machine, lists the operations, runs them on files, and shows what
//! they are worth.
//!
//! This file is the one place that prints errors and chooses the exit status: 0, 1 for a failure, 2 for a
//! command line that makes no sense.

mod args;
mod bench;
mod demo;
mod device;
mod doctor;
mod error;
mod explain;
mod list;
mod manifest;
mod ops;
mod output;
mod probe;
mod profile;
mod run;
mod table;

use std::process::ExitCode;

use args::{Command, Parsed};

fn main() -> ExitCode {
    // A limit to the size of files is an error of what is written, and not the end of the program.
    #[cfg(unix)]
    // SAFETY: there is no other thread yet, and no handler to lose.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
    let command = match args::parse(std::env::args_os()) {
        Parsed::Command(command) => command,
        Parsed::Help(text) => return finish(output::print(&text)),
        Parsed::Wrong(error) => return finish(Err(error)),
    };
    finish(match command {
        Command::Run(args) => run::run(&args),
        Command::List(args) => list::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Explain(args) => explain::run(&args),
    })
}

fn finish(result: Result<(), error::CliError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe has had enough, which is no failure of ours.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            output::note(&format!("error: {}", error.chain()));
            ExitCode::from(error.exit_status())
        }
    }
}
