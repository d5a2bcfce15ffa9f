//! The file of measured choices, as JSON: `{"format": 1, "machines": {machine: {problem: {"choice": .., "microseconds": ..}}}}`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::io;

/// Of the file; another is not read.
const FORMAT: u64 = 1;

/// What was measured for a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The plan that took least, by its name.
    pub choice: String,
    /// What it took.
    pub microseconds: f64,
}

/// Problems by machine.
type Choices = BTreeMap<String, BTreeMap<String, Measured>>;

/// Choices in memory and, with a path, on disk.
#[derive(Debug, Default)]
pub struct Store {
    path: Option<PathBuf>,
    choices: Choices,
}

impl Store {
    /// With what the file has.
    pub fn open(path: Option<PathBuf>) -> Store {
        let choices = path.as_deref().map(read).unwrap_or_default();
        Store { path, choices }
    }

    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub fn get(&self, machine: &str, problem: &str) -> Option<Measured> {
        self.choices.get(machine)?.get(problem).cloned()
    }

    /// Keeps a choice, and writes the file with what other processes have written in the meantime.
    pub fn keep(&mut self, machine: &str, problem: &str, measured: Measured) {
        let of_machine = self.choices.entry(machine.to_owned()).or_default();
        of_machine.insert(problem.to_owned(), measured);
        if let Some(path) = &self.path {
            for (machine, problems) in read(path) {
                let known = self.choices.entry(machine).or_default();
                for (problem, measured) in problems {
                    known.entry(problem).or_insert(measured);
                }
            }
            // A cache that cannot be written is one for this process.
            let _ = write(path, &self.choices);
        }
    }
}

/// What a file has; nothing where it is not there or not such a file.
fn read(path: &Path) -> Choices {
    let Ok(text) = std::fs::read(path) else { return Choices::new() };
    let Ok(file) = serde_json::from_slice::<Value>(&text) else { return Choices::new() };
    if file["format"] != FORMAT {
        return Choices::new();
    }
    let measured = |value: &Value| {
        let microseconds = value["microseconds"].as_f64()?;
        Some(Measured { choice: value["choice"].as_str()?.to_owned(), microseconds })
    };
    let machines = file["machines"].as_object().into_iter().flatten();
    machines
        .map(|(machine, problems)| {
            let problems = problems.as_object().into_iter().flatten();
            let known =
                problems.filter_map(|(problem, value)| Some((problem.clone(), measured(value)?))).collect();
            (machine.clone(), known)
        })
        .collect()
}

/// The file appears complete or not at all, in a folder that is made for it.
fn write(path: &Path, choices: &Choices) -> Result<()> {
    let mut machines = serde_json::Map::new();
    for (machine, problems) in choices {
        let of_machine: serde_json::Map<String, Value> = problems
            .iter()
            .map(|(problem, Measured { choice, microseconds })| {
                (problem.clone(), json!({ "choice": choice, "microseconds": microseconds }))
            })
            .collect();
        machines.insert(machine.clone(), Value::Object(of_machine));
    }
    let folder = io::folder_of(path);
    std::fs::create_dir_all(folder).map_err(|source| Error::Io {
        path: folder.into(),
        action: "make",
        source,
    })?;
    io::write(path, format!("{:#}\n", json!({ "format": FORMAT, "machines": machines })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(choice: &str, microseconds: f64) -> Measured {
        Measured { choice: choice.to_owned(), microseconds }
    }

    #[test]
    fn choices_are_found_again_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("autotune.json");
        let mut first = Store::open(Some(path.clone()));
        assert_eq!(first.get("gpu", "a"), None);
        first.keep("gpu", "a", measured("fast", 1.5));
        // Another process, which knows nothing of what comes next.
        let mut second = Store::open(Some(path.clone()));
        assert_eq!(second.get("gpu", "a"), Some(measured("fast", 1.5)));
        assert_eq!((second.get("gpu", "b"), second.get("other gpu", "a")), (None, None));
        first.keep("gpu", "b", measured("slow", 20.0));
        second.keep("other gpu", "a", measured("other", 3.0));
        let third = Store::open(Some(path));
        assert_eq!(third.get("gpu", "a"), Some(measured("fast", 1.5)));
        assert_eq!(third.get("gpu", "b"), Some(measured("slow", 20.0)));
        assert_eq!(third.get("other gpu", "a"), Some(measured("other", 3.0)));
    }

    #[test]
    fn a_choice_measured_again_replaces_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("autotune.json");
        let mut store = Store::open(Some(path.clone()));
        store.keep("gpu", "a", measured("one", 2.0));
        store.keep("gpu", "a", measured("two", 1.0));
        assert_eq!(Store::open(Some(path)).get("gpu", "a"), Some(measured("two", 1.0)));
    }

    #[test]
    fn files_of_something_else_count_as_empty_and_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("autotune.json");
        for text in
            ["", "{", "[]", r#"{"format": 2, "machines": {"gpu": {}}}"#, r#"{"format": 1, "machines": 3}"#]
        {
            std::fs::write(&path, text).unwrap();
            let mut store = Store::open(Some(path.clone()));
            assert_eq!(store.get("gpu", "a"), None, "{text}");
            store.keep("gpu", "a", measured("fast", 1.0));
            assert_eq!(
                Store::open(Some(path.clone())).get("gpu", "a"),
                Some(measured("fast", 1.0)),
                "{text}"
            );
        }
    }

    #[test]
    fn without_a_place_choices_stay_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        // A folder that cannot be made, and none at all.
        for path in [Some(file.join("autotune.json")), None] {
            let mut store = Store::open(path.clone());
            store.keep("gpu", "a", measured("fast", 1.0));
            assert_eq!(store.get("gpu", "a"), Some(measured("fast", 1.0)));
            assert_eq!(Store::open(path).get("gpu", "a"), None);
        }
    }
}
