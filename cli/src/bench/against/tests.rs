use super::*;
use crate::ops::OPS;

/// The names in the script's table.
fn listed() -> Vec<&'static str> {
    let table = SCRIPT.split_once("\nOPS = {\n").and_then(|(_, rest)| rest.split_once("\n}")).unwrap().0;
    table
        .lines()
        .map(|line| {
            let (name, function) = line.trim().trim_end_matches(',').split_once(": ").unwrap();
            let name = name.trim_matches('"');
            assert_eq!(name, function, "an entry and its function have one name");
            assert!(SCRIPT.contains(&format!("\ndef {name}(case):\n")), "{name} has no function");
            name
        })
        .collect()
}

#[test]
fn the_script_has_every_operation() {
    let listed = listed();
    for op in OPS {
        assert!(listed.contains(&op.name), "{} is not in OPS of torch_bench.py", op.name);
    }
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let error = Torch::start("/nowhere/python", 0).err().unwrap().to_string();
    assert!(error.starts_with("`/nowhere/python` does not start: "), "{error}");
    assert!(error.ends_with("; name another with `--python`"), "{error}");
}

/// A stand-in for Python that ignores the script. Another process writes it: what a process of another test has inherited open for
/// writing cannot be started.
#[cfg(unix)]
fn stand_in(folder: &std::path::Path, body: &str) -> String {
    let path = folder.join("python").to_str().unwrap().to_owned();
    let text = format!("#!/bin/sh\n{body}\n");
    let write = r#"printf %s "$2" > "$1" && chmod +x "$1""#;
    let status = std::process::Command::new("sh").args(["-c", write, "sh", &path, &text]).status();
    assert!(status.unwrap().success());
    path
}

#[cfg(unix)]
#[test]
fn cases_are_answered_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let program = stand_in(
        folder.path(),
        r#"echo "{\"torch\": \"2.0 on $2\"}"
        read -r line; case $line in *gelu*) echo '{"us": {"eager": 2.5, "compile": 2}}';; esac
        read -r line; echo '{"us": {"eager": 2}, "error": "torch.compile: no"}'
        read -r line; echo '{"error": "OutOfMemoryError: no"}'
        read -r line; echo 'why it ended' >&2"#,
    );
    let mut torch = Torch::start(&program, 3).unwrap();
    assert_eq!(torch.version, "2.0 on 3");
    let request = serde_json::json!({ "op": "gelu" });
    let want = [("eager".to_owned(), 2.5), ("compile".to_owned(), 2.0)];
    assert_eq!(torch.time(&request, START).unwrap(), Answer { us: want.into(), error: None });
    let answer = torch.time(&request, START).unwrap();
    assert_eq!((answer.us["eager"], answer.error.as_deref()), (2.0, Some("torch.compile: no")));
    let error = torch.time(&request, START).unwrap_err();
    assert!(Torch::lives_after(&error) && error.to_string().ends_with("`: OutOfMemoryError: no"), "{error}");
    let error = torch.time(&request, START).unwrap_err();
    assert!(!Torch::lives_after(&error), "{error}");
    assert!(error.to_string().ends_with("ended without an answer: why it ended"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_python_without_torch_is_an_error_before_any_case() {
    let folder = tempfile::tempdir().unwrap();
    let program = stand_in(folder.path(), r#"echo '{"error": "PyTorch cannot be imported: no"}'; exit 1"#);
    let error = Torch::start(&program, 0).err().unwrap().to_string();
    assert!(error.ends_with("python`: PyTorch cannot be imported: no"), "{error}");
    let program = stand_in(folder.path(), "echo rubbish");
    let error = Torch::start(&program, 0).err().unwrap();
    assert!(matches!(error, AgainstError::Garbled { .. }), "{error}");
}
