//! A text as numbers of characters.

use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use warpwright::Error;

use crate::error::CliError;

pub struct Text {
    /// The characters there are, in order.
    alphabet: Vec<char>,
    numbers: Vec<i32>,
}

/// Characters and those behind them, `[time, batch]`.
pub struct Batch {
    pub tokens: Vec<i32>,
    pub targets: Vec<i32>,
    pub time: usize,
    pub batch: usize,
}

impl Text {
    pub fn read(path: &Path) -> Result<Text, CliError> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Io {
            path: path.to_owned(),
            action: "read",
            source,
        })?;
        let mut alphabet: Vec<char> = text.chars().collect();
        alphabet.sort_unstable();
        alphabet.dedup();
        let mut read = Text { alphabet, numbers: Vec::new() };
        read.numbers = read.numbers(&text);
        Ok(read)
    }

    /// How many different characters there are.
    pub fn kinds(&self) -> usize {
        self.alphabet.len()
    }

    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The numbers of characters; those that the text has not are left out.
    pub fn numbers(&self, text: &str) -> Vec<i32> {
        text.chars().filter_map(|c| self.alphabet.binary_search(&c).ok()).map(|place| place as i32).collect()
    }

    pub fn spelled(&self, numbers: &[i32]) -> String {
        numbers.iter().filter_map(|&number| self.alphabet.get(number as usize)).collect()
    }

    /// Pieces from anywhere in the text.
    pub fn batch(&self, time: usize, batch: usize, seed: u64) -> Batch {
        let mut random = StdRng::seed_from_u64(seed);
        let starts: Vec<usize> =
            (0..batch).map(|_| random.random_range(0..self.numbers.len() - time)).collect();
        let at = |ahead: usize| {
            (0..time)
                .flat_map(|t| starts.iter().map(move |start| start + t))
                .map(|at| self.numbers[at + ahead])
                .collect()
        };
        Batch { tokens: at(0), targets: at(1), time, batch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_characters_behind() {
        let text = Text { alphabet: vec!['a', 'b', 'c'], numbers: vec![0, 1, 2, 0, 1, 2, 0, 1, 2, 0] };
        assert_eq!(text.spelled(&text.numbers("cxab")), "cab");
        let batch = text.batch(3, 4, 1);
        for (token, target) in batch.tokens.iter().zip(&batch.targets) {
            assert_eq!((token + 1) % 3, *target);
        }
        assert_eq!(
            (batch.tokens.len(), batch.tokens[0] + 1),
            (12, batch.tokens[4] + if batch.tokens[0] == 2 { 3 } else { 0 })
        );
    }
}
