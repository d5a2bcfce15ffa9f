//! `cargo xtask stage-gpu`: puts the program and the tests, compiled, into `.gpu/`, for a machine that has
//! a GPU and no compiler: an archive, and `run.sh`, which unpacks it there and runs what is in it.
//!
//! The programs are alike, each with all of the kernels' PTX, so together they take little more than one of them
//! does; loose they would be too large to carry.

mod archive;

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use archive::Archive;

#[derive(clap::Args)]
pub struct Args {
    /// Stage only the program, not the tests
    #[arg(long)]
    no_tests: bool,
    /// What `cargo build` and `cargo test` make anyway, instead of releases: the same kernels, and a host that takes longer to launch them
    #[arg(long)]
    dev: bool,
}

const FOLDER: &str = ".gpu";
const ARCHIVE: &str = "programs.tar.xz";
const SCRIPT: &str = include_str!("run.sh");
const PROGRAM: &str = "warpwright-cli";
const TESTED: [&str; 2] = ["warpwright", "warpwright-tests"];
/// Test programs that are of no use there, and why.
const LEFT_OUT: [(&str, &str); 1] = [("tests-compile_fail", "it needs cargo")];
/// What a transfer to such a machine may be expected to carry.
const LIMIT: u64 = 64 << 20;

/// An executable, under the name that it has in the archive.
#[derive(Debug, PartialEq)]
struct Staged {
    name: String,
    /// The folder, below the workspace's root and mirrored where it is unpacked, that cargo would run it in.
    directory: String,
    test: bool,
    executable: PathBuf,
}

pub fn run(root: &Path, args: &Args) -> Result<()> {
    let profile: &[&str] = if args.dev { &[] } else { &["--release"] };
    let mut artifacts = cargo(root, &[&["build", "-p", PROGRAM], profile].concat())?;
    artifacts.retain(|artifact| !artifact.profile.test);
    if !args.no_tests {
        let mut line = [&["test", "--no-run"], profile].concat();
        TESTED.iter().for_each(|package| line.extend(["-p", package]));
        artifacts.extend(cargo(root, &line)?.into_iter().filter(|artifact| artifact.profile.test));
    }
    let staged = staged(root, artifacts)?;

    let folder = root.join(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("{} cannot be removed", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be created", folder.display()))?;
    let packed = folder.join(ARCHIVE);
    let loose = pack(root, &staged, &packed)?;
    fs::write(folder.join("run.sh"), SCRIPT).context("run.sh cannot be written")?;

    let total = fs::metadata(&packed).context("the archive is gone")?.len() + SCRIPT.len() as u64;
    println!("{:>10} unpacked", mebibytes(loose));
    println!("{:>10} in {FOLDER}, which may hold {}", mebibytes(total), mebibytes(LIMIT));
    if total >= LIMIT {
        bail!("{FOLDER} is too large to carry");
    }
    println!("there: sh run.sh, or sh run.sh help");
    Ok(())
}

/// The executables by name, the program first.
fn staged(root: &Path, artifacts: Vec<Artifact>) -> Result<Vec<Staged>> {
    let mut staged: Vec<Staged> = artifacts.into_iter().filter_map(|artifact| artifact.stage(root)).collect();
    staged.sort_by(|a, b| (a.test, &a.name).cmp(&(b.test, &b.name)));
    let names: BTreeSet<&str> = staged.iter().map(|file| file.name.as_str()).collect();
    if names.len() < staged.len() {
        bail!("two staged programs have the same name: {}", names.into_iter().collect::<Vec<_>>().join(", "));
    }
    Ok(staged)
}

/// Writes the archive, and a line for each program; gives the bytes before compression.
fn pack(root: &Path, staged: &[Staged], path: &Path) -> Result<u64> {
    let scratch = tempfile::tempdir().context("there is no temporary folder")?;
    let mut archive = Archive::create(path)?;
    archive.add("programs", list(staged).as_bytes(), false)?;
    let mut total = 0;
    for file in staged.iter().filter(|file| left_out(file).is_none()) {
        let stripped = scratch.path().join(&file.name);
        strip(&file.executable, &stripped)?;
        let bytes = archive.add_file(&format!("bin/{}", file.name), &stripped, true)?;
        println!("{:>10} bin/{}", mebibytes(bytes), file.name);
        total += bytes;
    }
    let data = archive.add_folder("tests/data", &root.join("tests/data"))?;
    println!("{:>10} tests/data", mebibytes(data));
    archive.finish()?;
    Ok(total + data)
}

/// Why a program is not staged, if so.
fn left_out(file: &Staged) -> Option<&'static str> {
    LEFT_OUT.iter().find(|(name, _)| *name == file.name).map(|(_, why)| *why)
}

/// What `run.sh` runs: a line `test NAME DIRECTORY` or `skip NAME REASON` for each test program.
fn list(staged: &[Staged]) -> String {
    let line = |file: &Staged| match left_out(file) {
        Some(why) => format!("skip {} {why}\n", file.name),
        None => format!("test {} {}\n", file.name, file.directory),
    };
    staged.iter().filter(|file| file.test).map(line).collect()
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1u64 << 20) as f64)
}

/// The lines of cargo's JSON messages that are of interest here.
#[derive(Debug, Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

impl Artifact {
    /// The executable with its name in the archive, if there is one.
    fn stage(self, root: &Path) -> Option<Staged> {
        let package = self.manifest_path.parent().unwrap_or(root);
        let directory = package.strip_prefix(root).unwrap_or(package).to_string_lossy().replace('\\', "/");
        let test = self.profile.test;
        let name = match (test, self.target.kind.iter().any(|kind| kind == "test")) {
            (false, _) => self.target.name,
            (true, true) => format!("{}-{}", directory.replace('/', "-"), self.target.name),
            (true, false) => format!("{}-unit-{}", directory.replace('/', "-"), self.target.name),
        };
        Some(Staged { name, directory, test, executable: self.executable? })
    }
}

/// Runs cargo and returns the executables it made. Its diagnostics go to the terminal.
fn cargo(root: &Path, args: &[&str]) -> Result<Vec<Artifact>> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(args)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("cargo does not start")?;
    if !output.status.success() {
        bail!("`cargo {}` failed", args.join(" "));
    }
    Ok(executables(&String::from_utf8_lossy(&output.stdout)))
}

fn executables(messages: &str) -> Vec<Artifact> {
    // Lines of other kinds lack the fields.
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
    artifacts.filter(|artifact| artifact.executable.is_some()).collect()
}

/// Copies without debug information where there is a `strip`, else as it is.
fn strip(from: &Path, to: &Path) -> Result<()> {
    let mut strip = Command::new("strip");
    let stripped = strip.arg("-S").arg("-o").arg(to).arg(from).stderr(Stdio::null()).status();
    if stripped.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    fs::copy(from, to).with_context(|| format!("{} cannot be copied", from.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = r#"{"reason":"compiler-artifact","package_id":"x","manifest_path":"/w/host/Cargo.toml","target":{"kind":["lib"],"name":"warpwright"},"profile":{"opt_level":"3","test":false},"executable":null}
{"reason":"compiler-artifact","package_id":"x","manifest_path":"/w/host/Cargo.toml","target":{"kind":["lib"],"name":"warpwright"},"profile":{"opt_level":"3","test":true},"executable":"/t/warpwright-1"}
{"reason":"compiler-artifact","package_id":"x","manifest_path":"/w/tests/Cargo.toml","target":{"kind":["test"],"name":"softmax"},"profile":{"opt_level":"3","test":true},"executable":"/t/softmax-1"}
{"reason":"compiler-artifact","package_id":"x","manifest_path":"/w/cli/Cargo.toml","target":{"kind":["bin"],"name":"warpwright"},"profile":{"opt_level":"3","test":false},"executable":"/t/warpwright"}
{"reason":"build-finished","success":true}
"#;

    #[test]
    fn executables_get_names_that_do_not_collide() {
        let staged = staged(Path::new("/w"), executables(MESSAGES)).unwrap();
        let places: Vec<_> =
            staged.iter().map(|file| (file.name.as_str(), file.directory.as_str(), file.test)).collect();
        let want = [
            ("warpwright", "cli", false),
            ("host-unit-warpwright", "host", true),
            ("tests-softmax", "tests", true),
        ];
        assert_eq!(places, want);
        let twice = [executables(MESSAGES), executables(MESSAGES)].into_iter().flatten().collect();
        assert!(super::staged(Path::new("/w"), twice).is_err());
    }

    /// A staged folder whose test programs are scripts.
    #[cfg(unix)]
    struct Folder(tempfile::TempDir);

    #[cfg(unix)]
    impl Folder {
        fn new(programs: &[(&str, &str)]) -> Folder {
            let dir = tempfile::tempdir().unwrap();
            let staged: Vec<Staged> = programs
                .iter()
                .map(|&(name, body)| {
                    let executable = dir.path().join(name);
                    fs::write(&executable, format!("#!/bin/sh\n{body}\n")).unwrap();
                    Staged {
                        name: name.into(),
                        directory: "tests".into(),
                        test: name != "warpwright",
                        executable,
                    }
                })
                .collect();
            pack(dir.path(), &staged, &dir.path().join(ARCHIVE)).unwrap();
            fs::write(dir.path().join("run.sh"), SCRIPT).unwrap();
            Folder(dir)
        }

        /// Status and standard output.
        fn run(&self, args: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String) {
            let mut command = Command::new("sh");
            command.arg(self.0.path().join("run.sh")).args(args);
            for name in ["OUT", "WARPWRIGHT_UNPACK", "WARPWRIGHT_REQUIRE_GPU", "RAYON_NUM_THREADS"] {
                command.env_remove(name);
            }
            let output = command.envs(env.iter().copied()).output().unwrap();
            (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_script_reports_each_program_and_fails_if_one_did() {
        // The folder to run in is empty and did not come along.
        let good = "echo \"test result: ok. $WARPWRIGHT_REQUIRE_GPU passed; $RAYON_NUM_THREADS $(basename $PWD) $1\"";
        let folder = Folder::new(&[
            ("good", good),
            ("bad", "echo why; echo 'test result: FAILED. 1 failed'; exit 101"),
            ("tests-compile_fail", "exit 1"),
        ]);
        let want = "ok good: 1 passed; 4 tests \n\
                    FAILED bad: 1 failed\n    why\n    test result: FAILED. 1 failed\n\
                    skipped tests-compile_fail: it needs cargo\n\
                    1 of 2 test programs failed, 1 skipped\n";
        assert_eq!(folder.run(&[], &[]), (Some(1), want.to_owned()));
        let want = "ok good: 0 passed; 2 tests case\n0 of 1 test programs failed, 0 skipped\n";
        let env = [("WARPWRIGHT_REQUIRE_GPU", "0"), ("RAYON_NUM_THREADS", "2")];
        assert_eq!(folder.run(&["tests", "goo", "case"], &env), (Some(0), want.to_owned()));
        assert_eq!(folder.run(&["tests", "none"], &[]).0, Some(2));
        assert!(folder.0.path().join("logs/bad.log").is_file());
    }

    #[cfg(unix)]
    #[test]
    fn the_script_runs_the_program_and_keeps_what_it_was_told_to_unpack() {
        let folder = Folder::new(&[("warpwright", "echo \"$@\"; exit 3"), ("slow", "exec sleep 60")]);
        let kept = folder.0.path().join("kept");
        let env = [("WARPWRIGHT_UNPACK", kept.to_str().unwrap())];
        let want = (Some(3), "bench --quick --only x 1\n".to_owned());
        assert_eq!(folder.run(&["bench", "--quick", "--only", "x 1"], &env), want);
        // Unpacked once.
        fs::write(kept.join("bin/warpwright"), "#!/bin/sh\necho again\n").unwrap();
        assert_eq!(folder.run(&["demo"], &env), (Some(0), "again\n".to_owned()));
        let (status, said) = folder.run(&["tests", "slow"], &[("WARPWRIGHT_TIMEOUT", "1")]);
        assert!(status == Some(1) && said.starts_with("TIMEOUT slow: no summary"), "{said}");
    }

    #[cfg(unix)]
    #[test]
    fn the_script_runs_tests_under_the_sanitizer() {
        use std::os::unix::fs::PermissionsExt;

        let folder = Folder::new(&[("good", "echo 'test result: ok. 2 passed'")]);
        let tools = folder.0.path().join("tools");
        fs::create_dir(&tools).unwrap();
        let sanitizer = tools.join("compute-sanitizer");
        let body =
            "#!/bin/sh\necho \"========= ERROR SUMMARY: 0 errors of $1 $2 $3 $4\"; shift 4; exec \"$@\"\n";
        fs::write(&sanitizer, body).unwrap();
        fs::set_permissions(&sanitizer, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", tools.display(), env::var("PATH").unwrap());
        let want = "ok good: 2 passed; ERROR SUMMARY: 0 errors of --tool racecheck --error-exitcode 1\n\
                    0 of 1 test programs failed, 0 skipped\n";
        let got = folder.run(&["sanitizer", "racecheck", "good"], &[("PATH", &path)]);
        assert_eq!(got, (Some(0), want.to_owned()));
        assert_eq!(folder.run(&["sanitizer", "lint"], &[("PATH", &path)]).0, Some(2));
    }
}
