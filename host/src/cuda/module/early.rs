//! Early starts: PTX is made to wait for the launch ahead of it, on GPUs where a launch may start before that one is done.
//!
//! The instructions for it exist from compute capability 9.0 on, so PTX for 8.0 cannot have them, and no kernel has another
//! need to be built for 9.0. All of such a kernel's work depends on what came before it, so that it waits before its first
//! instruction. What it gains is the time between two launches: its blocks take their places as those of the kernel ahead
//! leave theirs. A kernel that knows better what it can do before it waits calls `cuda_std::dependent` in its source: portable ones
//! `begin`, where the wait is then put; those for exactly 9.0 have the instruction, and are left as they are. One that has no wait at
//! all is never launched early.

/// The portable target, and the first with the instructions.
const TARGETS: [&str; 2] = ["\n.target sm_80", "\n.target sm_90"];
/// The first version of PTX with the instructions.
const FIRST_VERSION: (u32, u32) = (7, 8);
/// What a kernel waits by, also where it does so by itself.
const WAIT: &str = "griddepcontrol.wait;";
const ALLOW_NEXT: &str = "griddepcontrol.launch_dependents;";

/// What `cuda_std::dependent::begin` leaves in portable PTX.
const MARK: &str = "{ .reg .pred begins_behind_what_is_ahead; }";

/// Whether a kernel waits for what is ahead of it, so that it may start early.
pub(super) fn waits(ptx: &str) -> bool {
    ptx.contains(WAIT)
}

/// The PTX of one kernel for a device with early starts; where `lets_next` holds, the one behind it may start when all blocks of this
/// one have, and else when they end. Nothing where it cannot be given a wait: it is of an older version, or not such as compilers
/// print.
pub(super) fn with_a_wait(ptx: &str, lets_next: bool) -> Option<String> {
    if waits(ptx) || version(ptx)? < FIRST_VERSION {
        return None;
    }
    // The one behind waits for this one's end by itself.
    let (at, after, lets_next) = match ptx.find(MARK) {
        Some(at) => (at, at + MARK.len(), true),
        None => first_instruction(ptx).map(|at| (at, at, lets_next))?,
    };
    let begin = [WAIT, ALLOW_NEXT].into_iter().take(if lets_next { 2 } else { 1 });
    let begin: String = begin.map(|instruction| format!("\t{instruction}\n")).collect();
    let mut out = String::with_capacity(ptx.len() + begin.len());
    out.push_str(&ptx[..at]);
    out.push_str(&begin);
    out.push_str(&ptx[after..]);
    // Code for exactly 9.0 has the instructions.
    Some(out.replacen(TARGETS[0], TARGETS[1], 1))
}

/// The version of PTX, major and minor.
fn version(ptx: &str) -> Option<(u32, u32)> {
    let mut words = ptx.lines().map(str::split_whitespace).find_map(|mut words| {
        words.next().filter(|&word| word == ".version")?;
        Some(words)
    })?;
    let (major, minor) = words.next()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Where the line of an entry's first instruction begins, behind its declarations.
fn first_instruction(ptx: &str) -> Option<usize> {
    let entry = ptx.find(".entry")?;
    let body = entry + ptx[entry..].find("\n{\n")? + 3;
    let declarations = ptx[body..].split_inclusive('\n').take_while(|line| {
        let word = line.split_whitespace().next().unwrap_or_default();
        matches!(word, "" | ".reg" | ".local" | ".shared")
    });
    Some(body + declarations.map(str::len).sum::<usize>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry row(\n\t.param .u64 p\n)\n.reqntid 64\n{\n\
        \t.reg .b32 %r<9>;\n\t.reg .b64 %rd<2>;\n\tld.param.b64 %rd1, [p];\n\tret;\n}\n";

    #[test]
    fn a_kernel_waits_before_its_first_instruction() {
        let early = with_a_wait(PTX, true).unwrap();
        let begins =
            "\t.reg .b64 %rd<2>;\n\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n\tld.param";
        assert!(early.contains(begins), "{early}");
        assert!(early.starts_with(".version 8.0\n.target sm_90\n.address"), "{early}");
        assert!(waits(&early) && !waits(PTX));
        assert_eq!(with_a_wait(PTX, false), Some(early.replace("\tgriddepcontrol.launch_dependents;\n", "")));
        let debug = with_a_wait(&PTX.replace("sm_80\n", "sm_80, debug\n"), true).unwrap();
        assert!(debug.contains("\n.target sm_90, debug\n"), "{debug}");
        let hopper = with_a_wait(&PTX.replace("sm_80", "sm_90a"), true).unwrap();
        assert!(hopper.starts_with(".version 8.0\n.target sm_90a\n") && waits(&hopper), "{hopper}");
    }

    #[test]
    fn a_kernel_that_says_where_it_begins_waits_there() {
        let marked = PTX.replace("\tret;", &format!("\t{MARK}\n\tret;"));
        let early = with_a_wait(&marked, false).unwrap();
        let lines: Vec<&str> = early.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert!(lines.ends_with(&["ld.param.b64 %rd1, [p];", WAIT, ALLOW_NEXT, "ret;", "}"]), "{early}");
        assert_eq!(early.matches(WAIT).count(), 1, "{early}");
    }

    #[test]
    fn what_cannot_be_given_a_wait_is_left() {
        let early = with_a_wait(PTX, true).unwrap();
        assert_eq!(with_a_wait(&early, true), None, "it has one");
        assert_eq!(with_a_wait(&PTX.replace("8.0", "7.7"), true), None, "there are no such instructions");
        assert!(with_a_wait(&PTX.replace("8.0", "7.8"), true).is_some());
        assert_eq!(with_a_wait(&PTX.replace("\n{\n", " {"), true), None);
        assert_eq!(with_a_wait(&PTX.replace(".version", "// version"), true), None);
    }
}
