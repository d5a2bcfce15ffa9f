//! Writing to the terminal without panics: a closed pipe is an error on stdout and of no matter on stderr. And
//! writing files that appear complete or not at all.

use std::io::Write;
use std::path::Path;

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

/// Says so before the work if the output has no place to go, or if that cannot be written to.
pub fn expect_place(out: &Path) -> Result<(), CliError> {
    let in_folder = |place: &Path| match folder_of(place) {
        folder if folder.is_dir() => Ok(()),
        folder => Err(CliError::NoFolder { path: out.to_owned(), folder: folder.to_owned() }),
    };
    in_folder(out)?;
    in_folder(&warpwright::io::destination(out)?)?;
    Ok(warpwright::io::probe(out)?)
}

/// Writes a file, which replaces one that was there.
pub fn write_file(path: &Path, text: &str) -> Result<(), CliError> {
    Ok(warpwright::io::write(path, text)?)
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a line to stderr. What it quotes may be anyone's, such as a tensor's name in a file: the terminal sees no control characters.
pub fn note(line: &str) {
    // Nobody is left to be told of a failure.
    let _ = writeln!(std::io::stderr(), "{}", harmless(line));
}

fn harmless(line: &str) -> String {
    line.chars().fold(String::with_capacity(line.len()), |mut shown, char| {
        match char.is_control() {
            true => shown.extend(char.escape_default()),
            false => shown.push(char),
        }
        shown
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_by_their_numbers() {
        assert_eq!(harmless("no tensor `\u{1b}[31mx·é`\n"), "no tensor `\\u{1b}[31mx·é`\\n");
    }

    #[test]
    fn a_file_is_replaced_or_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        write_file(&path, "first, and longer").unwrap();
        write_file(&path, "second").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second");
        let error = write_file(&folder.path().join("none/out"), "").unwrap_err().to_string();
        assert!(error.contains("none/out: cannot write: "), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(expect_place(&path).is_ok() && expect_place(Path::new("out")).is_ok());
        assert!(expect_place(&path.join("out")).is_err());
    }
}
