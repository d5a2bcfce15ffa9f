//! Where the tensors of a real model are.

use std::path::{Path, PathBuf};

use crate::error::CliError;

/// The file that a folder must have to be the one.
const MARK: &str = "minilm_layer0.safetensors";

/// The folder that was named, or the first that has the file: beside the program, below the current
/// folder, in the workspace that the program was built in.
pub fn find(named: Option<&Path>) -> Result<PathBuf, CliError> {
    let folders = match named {
        Some(folder) => vec![folder.to_owned()],
        None => usual(),
    };
    let found = folders.iter().find(|folder| folder.join(MARK).is_file()).cloned();
    found.ok_or_else(|| {
        let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        CliError::NoData { file: MARK, looked: looked.join(", ") }
    })
}

fn usual() -> Vec<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned));
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Some(beside) = beside {
        folders.extend([beside.join("data"), beside.join("../tests/data")]);
    }
    folders.push("tests/data".into());
    folders.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data"));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_folder_is_the_only_one_looked_at() {
        assert!(find(None).unwrap().join(MARK).is_file());
        let error = find(Some(Path::new("/nowhere"))).unwrap_err().to_string();
        let want =
            "cannot find minilm_layer0.safetensors: looked in /nowhere; name the folder with `--data DIR`";
        assert_eq!(error, want);
    }
}
