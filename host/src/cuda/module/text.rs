//! PTX as text: taking one kernel out of a family's, and what makes that text compress well.
//!
//! The build script, which packs the kernels, has this file too, so it uses nothing but `std`.

use std::collections::HashMap;

/// What stands for a kernel's own name where it is packed, so that instances differ in less.
pub const NAME: char = '&';

/// PTX, cut at its file scope. It is relied upon to be what compilers print: one declaration a statement.
pub struct Parts<'a> {
    items: Vec<Item<'a>>,
}

struct Item<'a> {
    text: &'a str,
    kind: Kind<'a>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind<'a> {
    Entry(&'a str),
    /// Functions and variables; a function's declaration and its definition have the same name.
    Named(&'a str),
    /// `.version` and the like.
    Directive,
}

impl<'a> Parts<'a> {
    pub fn of(ptx: &'a str) -> Self {
        let mut items = Vec::new();
        let mut rest = ptx;
        loop {
            rest = rest.trim_start();
            let comment = length_of_comment(rest);
            if comment > 0 {
                rest = &rest[comment..];
            } else if rest.is_empty() {
                return Self { items };
            } else {
                let (text, after) = rest.split_at(length_of_item(rest));
                items.push(Item { text, kind: kind_of(text) });
                rest = after;
            }
        }
    }

    /// The kernels' names, in the text's order.
    pub fn kernels(&self) -> impl Iterator<Item = &'a str> {
        self.items.iter().filter_map(|item| match item.kind {
            Kind::Entry(name) => Some(name),
            _ => None,
        })
    }

    /// A module of one kernel, with what it needs of the rest.
    pub fn module(&self, kernel: &str) -> Option<String> {
        let entry = self.items.iter().position(|item| item.kind == Kind::Entry(kernel))?;
        let mut wanted: Vec<bool> = self.items.iter().map(|item| item.kind == Kind::Directive).collect();
        wanted[entry] = true;
        let mut unread = vec![entry];
        while let Some(reader) = unread.pop() {
            for (index, item) in self.items.iter().enumerate() {
                let Kind::Named(name) = item.kind else { continue };
                if !wanted[index] && mentions(self.items[reader].text, name) {
                    wanted[index] = true;
                    unread.push(index);
                }
            }
        }
        let mut out = String::new();
        for (item, _) in self.items.iter().zip(wanted).filter(|(_, wanted)| *wanted) {
            out.push_str(item.text.trim_end());
            out.push('\n');
        }
        Some(out)
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%')
}

/// Whether a name occurs as a whole word.
fn mentions(text: &str, name: &str) -> bool {
    let bytes = text.as_bytes();
    text.match_indices(name).any(|(start, _)| {
        let before = start.checked_sub(1).map(|index| bytes[index]);
        let after = bytes.get(start + name.len()).copied();
        ![before, after].into_iter().flatten().any(is_name)
    })
}

/// The comment that a text begins with.
fn length_of_comment(text: &str) -> usize {
    if text.starts_with("//") {
        text.find('\n').unwrap_or(text.len())
    } else if text.starts_with("/*") {
        text.find("*/").map_or(text.len(), |end| end + 2)
    } else {
        0
    }
}

/// The statement, function or section that a text begins with.
fn length_of_item(text: &str) -> usize {
    const WHOLE_LINES: [&str; 5] = [".version", ".target", ".address_size", ".file", ".loc"];
    if text.split_whitespace().next().is_some_and(|word| WHOLE_LINES.contains(&word)) {
        return text.find('\n').unwrap_or(text.len());
    }
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut ends_with_brace) = (0, 0_usize, false);
    while at < bytes.len() {
        match bytes[at] {
            b'/' if length_of_comment(&text[at..]) > 0 => {
                at += length_of_comment(&text[at..]);
                continue;
            }
            b'"' => at += text[at + 1..].find('"').map_or(text.len(), |end| end + 1),
            b';' if depth == 0 => return at + 1,
            b'{' => {
                // The other braces at file scope are those of a variable's values.
                ends_with_brace |=
                    depth == 0 && [".entry", ".func", ".section"].iter().any(|w| mentions(&text[..at], w));
                depth += 1;
            }
            b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && ends_with_brace {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    text.len()
}

fn kind_of(item: &str) -> Kind<'_> {
    let head = item.split(['{', ';', '=']).next().unwrap_or(item);
    let first_name = |text: &'_ str| text.bytes().position(|byte| !is_name(byte)).unwrap_or(text.len());
    for (keyword, is_entry) in [(".entry", true), (".func", false)] {
        let Some((_, rest)) = head.split_once(keyword).filter(|_| mentions(head, keyword)) else { continue };
        let mut rest = rest.trim_start();
        if let Some(result) = rest.strip_prefix('(') {
            rest = result.split_once(')').map_or("", |(_, rest)| rest).trim_start();
        }
        let name = &rest[..first_name(rest)];
        return if is_entry { Kind::Entry(name) } else { Kind::Named(name) };
    }
    const SPACES: [&str; 5] = [".shared", ".global", ".const", ".tex", ".local"];
    let declared = head.split('[').next().unwrap_or(head);
    match declared.split_whitespace().last() {
        Some(name) if SPACES.iter().any(|space| mentions(head, space)) => Kind::Named(name),
        _ => Kind::Directive,
    }
}

/// Writes the number of each register (`%r12`) and label (`$L_12`) as its distance to what would be the next
/// new one of its class. In PTX that counts them as they appear, these are small and repeat where code
/// does, which halves the compressed size. `numbers_from_distances` is the inverse.
pub fn numbers_to_distances(ptx: &str) -> String {
    rewrite_numbers(ptx, ptx.len(), |highest, negative, number| {
        if negative {
            return None;
        }
        let distance = *highest + 1 - number;
        *highest = number.max(*highest);
        Some(distance)
    })
}

/// The PTX, of so many bytes, that has these distances.
pub fn numbers_from_distances(text: &str, bytes: usize) -> String {
    rewrite_numbers(text, bytes, |highest, negative, distance| {
        let number = *highest + 1 - if negative { -distance } else { distance };
        *highest = number.max(*highest);
        Some(number)
    })
}

/// Replaces numbers, given the highest of the class so far, whether there is a sign, and the number.
fn rewrite_numbers(
    text: &str,
    capacity: usize,
    mut replace: impl FnMut(&mut i64, bool, i64) -> Option<i64>,
) -> String {
    /// No sign that follows a name in PTX.
    const SIGN: char = '~';
    let mut highest: HashMap<&str, i64> = HashMap::new();
    let mut out = String::with_capacity(capacity);
    let mut rest = text;
    while let Some(start) = rest.find(['%', '$']) {
        let class_end =
            start + 1 + leading(&rest[start + 1..], |byte| byte.is_ascii_alphabetic() || byte == b'_');
        let negative = rest[class_end..].starts_with(SIGN);
        let digits_start = class_end + usize::from(negative);
        let end = digits_start + leading(&rest[digits_start..], |byte| byte.is_ascii_digit());
        let digits = &rest[digits_start..end];
        let ends = !rest[end..].bytes().next().is_some_and(is_name);
        // Other spellings of a number could not be restored.
        let is_plain = digits == "0" || !(digits.starts_with('0') || digits.is_empty());
        let number = digits.parse().ok().filter(|_| ends && is_plain);
        let class = highest.entry(&rest[start..class_end]).or_default();
        match number.and_then(|number| replace(class, negative, number)) {
            Some(number) => {
                out.push_str(&rest[..class_end]);
                if number < 0 {
                    out.push(SIGN);
                }
                push_number(&mut out, number.unsigned_abs());
            }
            None => out.push_str(&rest[..end]),
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

fn leading(text: &str, is: impl Fn(u8) -> bool) -> usize {
    text.bytes().position(|byte| !is(byte)).unwrap_or(text.len())
}

/// `write!`, without what formatting costs.
fn push_number(out: &mut String, number: u64) {
    if number > 9 {
        push_number(out, number / 10);
    }
    out.push(char::from(b'0' + (number % 10) as u8));
}
