//! Reads what the checks need to know out of PTX text: entries, parameters, shared memory, local
//! memory, calls, instructions.
//!
//! This is no PTX compiler: it relies on the text being what LLVM prints (balanced braces, one
//! declaration a statement), which `ptxas` has the last word on.

/// A PTX module, as far as it was read.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// The kernels.
    pub entries: Vec<Entry>,
    /// Names of the functions that are left beside the entries: inlining failed, or a panic is
    /// reachable.
    pub functions: Vec<String>,
}

/// One `.entry`.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its parameters, in order.
    pub params: Vec<Param>,
    /// Bytes of the parameter block, with the padding between parameters.
    pub param_bytes: u32,
    /// Bytes of `.shared` arrays that the entry declares or names.
    pub static_shared_bytes: u32,
    /// Whether the entry names an `.extern .shared` array.
    pub dynamic_shared: bool,
    /// Bytes of `.local` memory: `__local_depot` and the like.
    pub local_bytes: u32,
    /// Functions that are called, in order of appearance.
    pub calls: Vec<String>,
    /// The instructions and declarations of the body, without predicates, labels and comments, with
    /// single blanks.
    pub statements: Vec<String>,
    /// Where a performance directive may be inserted: just past the `)` of the parameter list.
    directive_offset: usize,
}

/// One `.param` of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Param {
    /// Bytes from the first parameter on.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// Bytes that it starts at a multiple of.
    pub align: u32,
}

impl Module {
    /// Takes PTX apart as far as its declarations go.
    pub fn parse(text: &str) -> Module {
        let clean = blank_comments(text);
        let mut module = Module::default();
        let mut shared: Vec<Shared> = Vec::new();
        let mut outside = 0;
        let mut at = 0;
        while let Some((keyword, start)) = next_function(&clean, at) {
            shared.extend(statements(&clean[outside..start]).iter().filter_map(|s| Shared::parse(s)));
            let header = start + keyword.len();
            let end_of_header = clean[header..].find(['{', ';']).map_or(clean.len(), |i| header + i);
            let is_definition = clean[end_of_header..].starts_with('{');
            let body_end = if is_definition { closing_brace(&clean, end_of_header) } else { end_of_header };
            let head = &clean[header..end_of_header];
            if keyword == ".entry" && is_definition {
                let body = &clean[end_of_header + 1..body_end];
                module.entries.push(Entry::parse(head, header, body));
            } else if keyword == ".func" {
                let name = function_name(head);
                if !module.functions.contains(&name) {
                    module.functions.push(name);
                }
            }
            at = (body_end + 1).min(clean.len());
            outside = at;
        }
        shared.extend(statements(&clean[outside..]).iter().filter_map(|s| Shared::parse(s)));
        for entry in &mut module.entries {
            entry.add_shared(&shared);
        }
        module
    }

    /// The kernel of this name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

impl Entry {
    fn parse(head: &str, head_offset: usize, body: &str) -> Entry {
        let open = head.find('(');
        let close = head.find(')').unwrap_or(head.trim_end().len());
        let name = head[..open.unwrap_or(close)].trim().to_owned();
        let list = open.map_or("", |open| &head[open + 1..close]);
        let (params, param_bytes) = parse_params(list);
        let statements = statements(body);
        let local = statements.iter().filter(|s| s.starts_with(".local")).map(|s| declared_bytes(s));
        Entry {
            name,
            params,
            param_bytes,
            local_bytes: local.sum(),
            calls: statements.iter().filter_map(|s| call_target(s)).collect(),
            directive_offset: head_offset + if open.is_some() { close + 1 } else { close },
            statements,
            ..Entry::default()
        }
    }

    fn add_shared(&mut self, module_level: &[Shared]) {
        let own: Vec<Shared> = self.statements.iter().filter_map(|s| Shared::parse(s)).collect();
        let named = module_level.iter().filter(|s| self.statements.iter().any(|text| names(text, &s.name)));
        let all: Vec<&Shared> = own.iter().chain(named).collect();
        self.static_shared_bytes = all.iter().map(|s| s.bytes.unwrap_or(0)).sum();
        self.dynamic_shared = all.iter().any(|s| s.bytes.is_none());
    }

    /// How many statements match a pattern of an `//@expect` line: they begin with it or, where it is
    /// written `*text`, contain it.
    pub fn count(&self, pattern: &str) -> u32 {
        let matches = |statement: &&String| match pattern.strip_prefix('*') {
            Some(inner) => statement.contains(inner),
            None => statement.starts_with(pattern),
        };
        self.statements.iter().filter(matches).count() as u32
    }
}

/// Writes lines of directives into entries. `text` must be what `module` was parsed from.
pub(crate) fn insert_directives(text: &str, module: &Module, lines: impl Fn(&str) -> Vec<String>) -> String {
    let mut entries: Vec<&Entry> = module.entries.iter().collect();
    entries.sort_by_key(|entry| entry.directive_offset);
    let mut out = String::with_capacity(text.len() + 64 * entries.len());
    let mut done = 0;
    for entry in entries {
        out.push_str(&text[done..entry.directive_offset]);
        for line in lines(&entry.name) {
            out.push('\n');
            out.push_str(&line);
        }
        done = entry.directive_offset;
    }
    out.push_str(&text[done..]);
    out
}

/// A `.shared` array; no size for an `.extern` one.
struct Shared {
    name: String,
    bytes: Option<u32>,
}

impl Shared {
    fn parse(statement: &str) -> Option<Shared> {
        let at = statement.find(".shared")?;
        let prefix = &statement[..at];
        // `ld.shared` and the like are instructions; a declaration begins with `.shared` or linkage.
        if !prefix.split_whitespace().all(|word| matches!(word, ".extern" | ".visible" | ".weak" | ".common"))
        {
            return None;
        }
        let name = statement.split_whitespace().last()?.split('[').next()?.to_owned();
        let bytes = (!prefix.contains(".extern")).then(|| declared_bytes(statement));
        Some(Shared { name, bytes })
    }
}

/// The same text at the same offsets with comments turned into blanks. Strings are left alone, so that
/// a `//` in a file name does not hide the rest of its line.
pub(crate) fn blank_comments(text: &str) -> String {
    let mut out = text.as_bytes().to_vec();
    let mut at = 0;
    while at < out.len() {
        let end = match (out[at], out.get(at + 1)) {
            (b'/', Some(b'/')) => find(&out, at, b"\n").unwrap_or(out.len()),
            (b'/', Some(b'*')) => find(&out, at + 2, b"*/").map_or(out.len(), |i| i + 2),
            (b'"', _) => {
                at = find(&out, at + 1, b"\"").map_or(out.len(), |i| i + 1);
                continue;
            }
            _ => {
                at += 1;
                continue;
            }
        };
        out[at..end].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = end;
    }
    // Only whole comments were replaced, so this is still the UTF-8 it was.
    String::from_utf8(out).unwrap_or_default()
}

fn find(text: &[u8], from: usize, needle: &[u8]) -> Option<usize> {
    text.get(from..)?.windows(needle.len()).position(|window| window == needle).map(|i| from + i)
}

fn next_function(clean: &str, from: usize) -> Option<(&'static str, usize)> {
    let word = |keyword: &'static str| {
        let mut at = from;
        loop {
            let start = at + clean[at..].find(keyword)?;
            at = start + keyword.len();
            if clean[at..].starts_with(char::is_whitespace) {
                return Some((keyword, start));
            }
        }
    };
    match (word(".entry"), word(".func")) {
        (Some(entry), Some(func)) => Some(if entry.1 < func.1 { entry } else { func }),
        (entry, func) => entry.or(func),
    }
}

fn closing_brace(clean: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (i, byte) in clean.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return i,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    clean.len()
}

/// `(.param .b32 ret) name (…)`, where the return value is optional.
fn function_name(head: &str) -> String {
    let head = head.trim_start();
    let rest = match head.strip_prefix('(') {
        Some(result) => result.split_once(')').map_or("", |(_, rest)| rest),
        None => head,
    };
    rest.trim_start().chars().take_while(|c| is_name(*c)).collect()
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%')
}

fn names(statement: &str, name: &str) -> bool {
    statement.split(|c| !is_name(c)).any(|word| word == name)
}

/// Splits at `;` and at block braces (those of a vector operand stay), drops labels and predicates.
fn statements(body: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut current = String::new();
    let mut operand_depth = 0usize;
    for c in body.chars() {
        match c {
            '{' if !at_statement_start(&current) => {
                operand_depth += 1;
                current.push(c);
            }
            '}' if operand_depth > 0 => {
                operand_depth -= 1;
                current.push(c);
            }
            ';' if operand_depth == 0 => push_statement(&mut out, &mut current),
            '{' | '}' => push_statement(&mut out, &mut current),
            _ => current.push(c),
        }
    }
    push_statement(&mut out, &mut current);
    out
}

/// The lines of a text without the directives that end with their line instead of a `;`.
fn code_lines(text: &str) -> impl Iterator<Item = &str> {
    const LINE_DIRECTIVES: [&str; 5] = [".loc", ".file", ".version", ".target", ".address_size"];
    let ends_with_line =
        |line: &str| line.split_whitespace().next().is_some_and(|word| LINE_DIRECTIVES.contains(&word));
    text.lines().map(str::trim).filter(move |line| !ends_with_line(line))
}

fn at_statement_start(current: &str) -> bool {
    code_lines(current).all(|line| line.is_empty() || line.ends_with(':'))
}

fn push_statement(out: &mut Vec<String>, current: &mut String) {
    let without_lines = code_lines(current).collect::<Vec<_>>().join(" ");
    let mut words: Vec<&str> = without_lines.split_whitespace().collect();
    while words.first().is_some_and(|word| word.ends_with(':')) {
        words.remove(0);
    }
    if words.first().is_some_and(|word| word.starts_with('@')) {
        words.remove(0);
    }
    if !words.is_empty() {
        out.push(words.join(" "));
    }
    current.clear();
}

fn call_target(statement: &str) -> Option<String> {
    let (opcode, rest) = statement.split_once(|c: char| c.is_whitespace() || c == '(')?;
    if opcode != "call" && opcode != "call.uni" {
        return None;
    }
    let rest = statement[opcode.len()..]
        .trim_start()
        .strip_prefix('(')
        .map_or(rest, |results| results.split_once(')').map_or("", |(_, rest)| rest));
    Some(rest.trim_start_matches([',', ' ']).chars().take_while(|c| is_name(*c)).collect())
}

/// Bytes of `.align 16 .b8 name[32][4]`; an array without a length has none.
fn declared_bytes(declaration: &str) -> u32 {
    let scalar = declaration.split_whitespace().rev().find_map(scalar_bytes).unwrap_or(0);
    let mut elements = 1u32;
    for dimension in declaration.split('[').skip(1) {
        let length = dimension.split(']').next().unwrap_or("").trim();
        elements = elements.saturating_mul(length.parse().unwrap_or(0));
    }
    scalar.saturating_mul(elements)
}

fn scalar_bytes(word: &str) -> Option<u32> {
    let kind = word.strip_prefix('.')?;
    let bits = kind.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    if !["b", "u", "s", "f"].contains(&&kind[..kind.len() - bits.len()]) {
        return None;
    }
    match bits {
        "8" | "16" | "32" | "64" | "128" => bits.parse::<u32>().ok().map(|bits| bits / 8),
        _ => None,
    }
}

fn parse_params(list: &str) -> (Vec<Param>, u32) {
    let mut params = Vec::new();
    let mut offset = 0u32;
    for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let size = declared_bytes(text);
        let scalar = text.split_whitespace().find_map(scalar_bytes).unwrap_or(1);
        // `.ptr .align 16` is the alignment of the pointee, not of the parameter.
        let own = text.split(".ptr").next().unwrap_or(text);
        let words: Vec<&str> = own.split_whitespace().collect();
        let stated = words.windows(2).find(|pair| pair[0] == ".align").and_then(|pair| pair[1].parse().ok());
        let align = stated.unwrap_or(scalar).max(1);
        offset = offset.next_multiple_of(align);
        params.push(Param { offset, size, align });
        offset += size;
    }
    (params, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"//
.version 8.0
.target sm_80, debug
.address_size 64
.extern .shared .align 1024 .b8 dyn_smem[];
.shared .align 4 .b8 used[64];
.shared .align 4 .b8 unused[4096];
.func  (.param .b32 retval0) helper
(
	.param .b64 helper_param_0
)
.noreturn;
	// .globl	first {
.visible .entry first(
	.param .u64 .ptr .align 16 first_param_0,
	.param .u32 first_param_1,
	.param .align 8 .b8 first_param_2[32],
	.param .u16 first_param_3
)
{
	.local .align 8 .b8 	__local_depot1[528];
	.reg .b64 	%SP;
	.loc	1 24 0
	ld.global.nc.L1::no_allocate.v4.b32 	{%r1, %r2, %r3, %r4}, [%rd5]; // call nothing;
$L__BB0_1:
	@%p1 bra 	$L__BB0_1;
	{ // callseq 0, 0
	.param .b64 	param0;
	call.uni (retval0), helper, (param0);
	}
	{ .shared .align 16 .b8 tile[2][512]; mov.u32 %r9, tile; }
	mov.u32 %r2, used;
	mov.u32 %r3, dyn_smem;
	@!%p2 st.shared.b32 [%r2], %r3;
	ret;
}
.visible .entry second()
.maxntid 64
{
	ret;
}
.func helper() { trap; }
.file	1 "/a//b.rs"
"#;

    #[test]
    fn entries_functions_and_their_facts_are_read() {
        let module = Module::parse(SAMPLE);
        assert_eq!(module.entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["first", "second"]);
        assert_eq!(module.functions, ["helper"]);
        let first = module.entry("first").unwrap();
        let want = [(0, 8, 8), (8, 4, 4), (16, 32, 8), (48, 2, 2)];
        assert_eq!(first.params, want.map(|(offset, size, align)| Param { offset, size, align }));
        assert_eq!(first.param_bytes, 50);
        assert_eq!(first.local_bytes, 528);
        assert_eq!(first.static_shared_bytes, 1024 + 64, "own and named arrays, not the unused one");
        assert!(first.dynamic_shared);
        assert_eq!(first.calls, ["helper"]);
        let second = module.entry("second").unwrap();
        assert_eq!((second.params.len(), second.param_bytes, second.static_shared_bytes), (0, 0, 0));
        assert!(!second.dynamic_shared);
        assert_eq!(second.statements, ["ret"]);
    }

    #[test]
    fn instructions_are_counted_by_how_they_begin_or_by_what_they_contain() {
        let module = Module::parse(SAMPLE);
        let first = module.entry("first").unwrap();
        assert_eq!(first.count("ld.global.nc.L1::no_allocate"), 1);
        assert_eq!(first.count("ld.global"), 1);
        assert_eq!(first.count("st.shared"), 1, "behind a predicate");
        assert_eq!(first.count("bra"), 1, "behind a label and a predicate");
        assert_eq!(first.count("call nothing"), 0, "in a comment");
        assert_eq!(first.count("shared"), 0);
        assert_eq!(first.count("*dyn_smem"), 1);
        assert_eq!(first.count("ld.global.nc.L1::no_allocate.v4.b32 {%r1, %r2, %r3, %r4}, [%rd5]"), 1);
    }

    #[test]
    fn directives_go_between_the_parameters_and_the_body() {
        let module = Module::parse(SAMPLE);
        let out = insert_directives(SAMPLE, &module, |name| match name {
            "first" => vec![".maxntid 256".into(), ".minnctapersm 2".into()],
            _ => vec![".maxnreg 32".into()],
        });
        assert!(out.contains("first_param_3\n)\n.maxntid 256\n.minnctapersm 2\n{\n"), "{out}");
        assert!(out.contains("second()\n.maxnreg 32\n.maxntid 64\n{\n"), "{out}");
        assert_eq!(out.len(), SAMPLE.len() + "\n.maxntid 256\n.minnctapersm 2\n.maxnreg 32".len());
    }

    #[test]
    fn text_without_entries_has_none() {
        let module = Module::parse("");
        assert!(module.entries.is_empty() && module.functions.is_empty());
        assert!(Module::parse(".version 8.0\n// .entry foo(\n").entries.is_empty());
    }
}
