//! Numbers of things in what people read.

use std::fmt;

/// So many of what a word names: "1 block", "2 blocks".
pub(crate) struct Count<'a>(pub usize, pub &'a str);

impl fmt::Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Count(number, word) = self;
        write!(f, "{number} {word}{}", if *number == 1 { "" } else { "s" })
    }
}

#[cfg(test)]
mod tests {
    use super::Count;

    #[test]
    fn one_is_not_many() {
        let all = [0, 1, 2].map(|number| Count(number, "block").to_string());
        assert_eq!(all, ["0 blocks", "1 block", "2 blocks"]);
    }
}
