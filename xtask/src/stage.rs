//! `cargo xtask stage-gpu`: puts the program and the tests, compiled, into `.gpu/`, for a machine that has
//! a GPU and no compiler. There, `sh .gpu/run.sh` runs the tests.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

#[derive(clap::Args)]
pub struct Args {
    /// Stage only the program, not the tests
    #[arg(long)]
    no_tests: bool,
}

const FOLDER: &str = ".gpu";
const PROGRAM: &str = "warpwright-cli";
const TESTED: [&str; 2] = ["warpwright", "warpwright-tests"];
/// What a transfer to such a machine may be expected to carry.
const LIMIT: u64 = 64 << 20;

#[derive(Debug, PartialEq, Serialize)]
struct Staged {
    /// Below `.gpu/bin`.
    name: String,
    /// The folder, below the workspace's root and mirrored in `.gpu`, that cargo would run it in.
    directory: String,
    test: bool,
    bytes: u64,
}

pub fn run(root: &Path, args: &Args) -> Result<()> {
    let mut artifacts = cargo(root, &["build", "--release", "-p", PROGRAM])?;
    artifacts.retain(|artifact| !artifact.profile.test);
    if !args.no_tests {
        let mut line = vec!["test", "--release", "--no-run"];
        TESTED.iter().for_each(|package| line.extend(["-p", package]));
        artifacts.extend(cargo(root, &line)?.into_iter().filter(|artifact| artifact.profile.test));
    }

    let folder = root.join(FOLDER);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("{} cannot be removed", folder.display()))?;
    }
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("{} cannot be created", bin.display()))?;
    let mut staged = Vec::new();
    for artifact in &artifacts {
        let Some(executable) = &artifact.executable else { continue };
        let (name, directory) = artifact.place(root);
        strip(executable, &bin.join(&name))?;
        let mirror = folder.join(&directory);
        fs::create_dir_all(&mirror).with_context(|| format!("{} cannot be created", mirror.display()))?;
        let bytes = fs::metadata(bin.join(&name))?.len();
        staged.push(Staged { name, directory, test: artifact.profile.test, bytes });
    }
    staged.sort_by(|a, b| (a.test, &a.name).cmp(&(b.test, &b.name)));
    let names: BTreeSet<&str> = staged.iter().map(|file| file.name.as_str()).collect();
    if names.len() < staged.len() {
        bail!("two staged programs have the same name: {}", names.into_iter().collect::<Vec<_>>().join(", "));
    }

    let data = copy_tree(&root.join("tests/data"), &folder.join("tests/data"), &|_| true)?;
    let bench = copy_tree(&root.join("tests/bench"), &folder.join("bench"), &|path| {
        path.extension().is_some_and(|extension| extension == "py")
    })?;
    fs::write(folder.join("run.sh"), script(&staged)).context("run.sh cannot be written")?;
    let manifest = serde_json::to_string_pretty(&staged).context("the manifest does not serialize")?;
    fs::write(folder.join("manifest.json"), manifest + "\n").context("the manifest cannot be written")?;

    for file in &staged {
        println!("{:>10} bin/{}", mebibytes(file.bytes), file.name);
    }
    println!("{:>10} tests/data", mebibytes(data));
    println!("{:>10} bench", mebibytes(bench));
    let total = staged.iter().map(|file| file.bytes).sum::<u64>() + data + bench;
    println!("{:>10} in {FOLDER}, which may hold {}", mebibytes(total), mebibytes(LIMIT));
    if total >= LIMIT {
        bail!("{FOLDER} is too large to carry");
    }
    Ok(())
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
    /// The name of the staged file and the folder it runs in.
    fn place(&self, root: &Path) -> (String, String) {
        let package = self.manifest_path.parent().unwrap_or(root);
        let directory = package.strip_prefix(root).unwrap_or(package).to_string_lossy().replace('\\', "/");
        let name = match (self.profile.test, self.target.kind.iter().any(|kind| kind == "test")) {
            (false, _) => self.target.name.clone(),
            (true, true) => format!("{}-{}", directory.replace('/', "-"), self.target.name),
            (true, false) => format!("{}-unit-{}", directory.replace('/', "-"), self.target.name),
        };
        (name, directory)
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
    let stripped = Command::new("strip").arg("-S").arg("-o").arg(to).arg(from).status();
    if stripped.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    fs::copy(from, to).with_context(|| format!("{} cannot be copied", from.display()))?;
    Ok(())
}

/// Copies the files of a folder that may not exist; returns their bytes.
fn copy_tree(from: &Path, to: &Path, wanted: &dyn Fn(&Path) -> bool) -> Result<u64> {
    if !from.is_dir() {
        return Ok(0);
    }
    let mut bytes = 0;
    for entry in fs::read_dir(from).with_context(|| format!("{} cannot be listed", from.display()))? {
        let path = entry?.path();
        let target = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            bytes += copy_tree(&path, &target, wanted)?;
        } else if wanted(&path) {
            fs::create_dir_all(to).with_context(|| format!("{} cannot be created", to.display()))?;
            bytes +=
                fs::copy(&path, &target).with_context(|| format!("{} cannot be copied", path.display()))?;
        }
    }
    Ok(bytes)
}

/// Runs each test program where cargo would, prints a line for each, and what a failed one said.
fn script(staged: &[Staged]) -> String {
    let mut text = String::from(
        r#"#!/bin/sh
# Runs the staged tests on this machine's GPU, which must be there. Arguments go to the test programs.
# Full output: $OUT/logs, or logs/ beside this file.
here=$(cd "$(dirname "$0")" && pwd)
logs=${OUT:-$here}/logs
mkdir -p "$logs"
failed=0

run() {
    name=$1 directory=$2
    shift 2
    chmod +x "$here/bin/$name" 2>/dev/null
    mkdir -p "$here/$directory" && cd "$here/$directory" || exit 2
    if CARGO_MANIFEST_DIR="$here/$directory" WARPWRIGHT_REQUIRE_GPU=1 \
        "$here/bin/$name" "$@" >"$logs/$name.log" 2>&1; then
        word=ok
    else
        word=FAILED
        failed=$((failed + 1))
    fi
    summary=$(grep '^test result:' "$logs/$name.log" | tail -n 1 | sed 's/^test result: [a-zA-Z]*\. //')
    echo "$word $name: ${summary:-no summary}"
    if [ "$word" = FAILED ]; then
        tail -n 60 "$logs/$name.log" | sed 's/^/    /'
    fi
}

"#,
    );
    let tests: Vec<&Staged> = staged.iter().filter(|file| file.test).collect();
    for test in &tests {
        text.push_str(&format!("run '{}' '{}' \"$@\"\n", test.name, test.directory));
    }
    text.push_str(&format!(
        "echo \"$failed of {} test programs failed\"\n[ \"$failed\" -eq 0 ]\n",
        tests.len()
    ));
    text
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
        let found = executables(MESSAGES);
        let places: Vec<_> = found.iter().map(|artifact| artifact.place(Path::new("/w"))).collect();
        let want = [("host-unit-warpwright", "host"), ("tests-softmax", "tests"), ("warpwright", "cli")];
        assert_eq!(places, want.map(|(name, directory)| (name.to_owned(), directory.to_owned())));
    }

    #[test]
    fn only_wanted_files_of_an_existing_folder_are_copied() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir_all(from.join("sub")).unwrap();
        fs::write(from.join("a.py"), "12").unwrap();
        fs::write(from.join("sub/b.py"), "345").unwrap();
        fs::write(from.join("c.txt"), "6789").unwrap();
        let to = dir.path().join("to");
        let is_python = |path: &Path| path.extension().is_some_and(|e| e == "py");
        assert_eq!(copy_tree(&from, &to, &is_python).unwrap(), 5);
        assert!(to.join("sub/b.py").is_file() && !to.join("c.txt").exists());
        assert_eq!(copy_tree(&dir.path().join("none"), &to, &|_| true).unwrap(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn the_script_reports_each_program_and_fails_if_one_did() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("bin")).unwrap();
        // The folder to run in is empty and did not come along.
        let program = |name: &str, body: &str| {
            fs::write(dir.path().join("bin").join(name), format!("#!/bin/sh\n{body}\n")).unwrap();
            Staged { name: name.into(), directory: "tests".into(), test: true, bytes: 0 }
        };
        let good =
            program("good", "echo \"test result: ok. $WARPWRIGHT_REQUIRE_GPU passed; $(basename $PWD) $1\"");
        let bad = program("bad", "echo why; echo 'test result: FAILED. 1 failed'; exit 101");
        let output = |staged: &[Staged]| {
            fs::write(dir.path().join("run.sh"), script(staged)).unwrap();
            let output = Command::new("sh")
                .arg(dir.path().join("run.sh"))
                .arg("filter")
                .env_remove("OUT")
                .output()
                .unwrap();
            (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let both = output(&[good, bad]);
        assert_eq!(both.0, Some(1));
        assert_eq!(
            both.1,
            "ok good: 1 passed; tests filter\nFAILED bad: 1 failed\n    why\n    test result: FAILED. 1 failed\n1 of 2 test programs failed\n"
        );
        let good = Staged { name: "good".into(), directory: "tests".into(), test: true, bytes: 0 };
        assert_eq!(output(&[good]).0, Some(0));
        let program_only = Staged { name: "good".into(), directory: "tests".into(), test: false, bytes: 0 };
        assert_eq!(output(&[program_only]).1, "0 of 0 test programs failed\n");
    }
}
