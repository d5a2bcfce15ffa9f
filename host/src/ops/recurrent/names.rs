//! Names of the tensors of which a network has one for each layer.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// The name of a layer's and direction's weight, as errors have it: PyTorch's, the first layer's without a number, such as `w_hh`,
/// `w_hh_reverse` and `w_hh_l1`.
pub fn weight_name(weight: &str, layer: usize, reverse: bool) -> &'static str {
    let direction = if reverse { "_reverse" } else { "" };
    lasting(match layer {
        0 => format!("{weight}{direction}"),
        _ => format!("{weight}_l{layer}{direction}"),
    })
}

/// The name of a layer's result, of those below the last.
pub fn inner_name(layer: usize) -> &'static str {
    lasting(format!("y_l{layer}"))
}

/// A name for as long as the program runs, which errors want: made once for each.
fn lasting(name: String) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name.as_str()) {
        return known;
    }
    let made: &'static str = name.leak();
    names.insert(made);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_once() {
        let [first, second] = [false, true].map(|reverse| weight_name("w_ih", 3, reverse));
        assert_eq!((first, second), ("w_ih_l3", "w_ih_l3_reverse"));
        assert_eq!(first.as_ptr(), weight_name("w_ih", 3, false).as_ptr());
        assert_eq!((weight_name("b_hh", 0, false), weight_name("b_hh", 0, true)), ("b_hh", "b_hh_reverse"));
        assert_eq!(inner_name(0), "y_l0");
    }
}
