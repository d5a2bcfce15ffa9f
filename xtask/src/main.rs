//! Developers' automation: `cargo xtask <command>`.

mod build_ptx;
mod check_ptx;
mod copies;
mod families;
mod manifest;
mod sass;
mod sources;
mod stage;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developers' automation of Warpwright", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compile the kernels to host/ptx, as far as their sources have changed
    BuildPtx(build_ptx::Args),
    /// Assemble host/ptx for every architecture and fail on what must not ship
    CheckPtx(check_ptx::Args),
    /// Print the machine code of a family's kernels
    Sass(sass::Args),
    /// Put programs and tests into .gpu, for a machine that has a GPU and no compiler
    StageGpu(stage::Args),
}

fn main() -> ExitCode {
    let root = root();
    let result = match Cli::parse().command {
        Command::BuildPtx(args) => build_ptx::run(&root, &args),
        Command::CheckPtx(args) => check_ptx::run(&root, &args),
        Command::Sass(args) => sass::run(&root, &args),
        Command::StageGpu(args) => stage::run(&root, &args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root: this package lies in a folder below it. Cargo says where it runs the package;
/// a program started without cargo knows where it was compiled.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).parent().unwrap_or(Path::new(".")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        assert!(root().join("Cargo.toml").is_file());
    }

    #[test]
    fn commands_take_the_arguments_they_document() {
        for line in [
            "x build-ptx",
            "x build-ptx --check --rebuild --family probe",
            "x build-ptx --force",
            "x check-ptx --allow-missing-ptxas --family probe",
            "x sass probe copy --arch sm_90a",
            "x stage-gpu",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        for line in ["x", "x build", "x build-ptx --rebuild", "x build-ptx --force --check", "x sass"] {
            assert_eq!(Cli::try_parse_from(line.split(' ')).err().map(|e| e.exit_code()), Some(2), "{line}");
        }
    }
}
