//! Texts told by the lines that they share with another: instances of a kernel differ in few.
//!
//! The build script, which packs the kernels, has this file too, so it uses nothing but `std`.

use std::collections::HashMap;
use std::fmt::Write;

/// What a run of shared lines begins with: no line of PTX does.
const RUN: char = '=';
/// Fewest lines of a run, and most places in the base at which a longer one is looked for.
const LEAST: usize = 3;
const MOST_PLACES: usize = 8;

/// The lines of `base`, to tell others by.
pub struct Base<'a> {
    lines: &'a [&'a str],
    /// Where each few lines in a row are.
    places: HashMap<&'a [&'a str], Vec<usize>>,
}

impl<'a> Base<'a> {
    /// `lines` are a text's, cut at its line feeds.
    pub fn new(lines: &'a [&'a str]) -> Self {
        let mut places: HashMap<_, Vec<_>> = HashMap::new();
        for (at, few) in lines.windows(LEAST).enumerate() {
            places.entry(few).or_default().push(at);
        }
        Base { lines, places }
    }

    /// A text told by lines of this one: a run of these as `=`, how far it begins behind the end of the run before and how many there are; other lines as
    /// they are. [`with_lines_of`] is the inverse, where no line begins with `=`.
    pub fn tell(&self, text: &str) -> String {
        let lines: Vec<&str> = text.split('\n').collect();
        let mut told = String::new();
        let (mut at, mut end) = (0, 0);
        while at < lines.len() {
            if at > 0 {
                told.push('\n');
            }
            match self.longest(&lines[at..], end) {
                Some((start, count)) => {
                    // Writing to a String does not fail.
                    let _ = write!(told, "{RUN}{} {count}", start as i64 - end as i64);
                    (at, end) = (at + count, start + count);
                }
                None => {
                    told.push_str(lines[at]);
                    at += 1;
                }
            }
        }
        told
    }

    /// The longest run that the lines begin with, where it begins here and how long it is; that from `next` on before others.
    fn longest(&self, lines: &[&str], next: usize) -> Option<(usize, usize)> {
        let places = self.places.get(lines.get(..LEAST)?)?;
        let going_on = places.binary_search(&next).ok().map(|_| next);
        let count = |start: usize| self.lines[start..].iter().zip(lines).take_while(|(a, b)| a == b).count();
        let runs = going_on.into_iter().chain(places.iter().copied().take(MOST_PLACES));
        runs.map(|start| (start, count(start))).reduce(|best, run| if run.1 > best.1 { run } else { best })
    }
}

/// The text that was told by the lines of `base`; none of what tells none.
pub fn with_lines_of(base: &str, told: &str) -> Option<String> {
    let lines: Vec<&str> = base.split('\n').collect();
    let mut out: Vec<&str> = Vec::new();
    let mut end = 0usize;
    for line in told.split('\n') {
        let Some(run) = line.strip_prefix(RUN) else {
            out.push(line);
            continue;
        };
        let (behind, count) = run.split_once(' ')?;
        let start = end.checked_add_signed(behind.parse().ok()?)?;
        end = start.checked_add(count.parse().ok()?)?;
        out.extend(lines.get(start..end)?);
    }
    Some(out.join("\n"))
}
