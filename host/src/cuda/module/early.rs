//! Early starts: PTX is made to wait for the launch ahead of it, on GPUs where a launch may start before that one is done.
//!
//! The instructions for it exist from compute capability 9.0 on, so PTX for 8.0 cannot have them, and no kernel has another
//! need to be built for 9.0. All of such a kernel's work depends on what came before it, so that it waits before its first
//! instruction. What it gains is the time between two launches: its blocks take their places as those of the kernel ahead
//! leave theirs. A kernel that knows better what it can do before it waits calls `cuda_std::dependent` in its source: portable ones
//! `begin`, where the wait is then put; those for exactly 9.0 have the instruction. One that has no wait at all is never launched
//! early.

/// The portable target, and the first with the instructions.
const TARGETS: [&str; 2] = ["\n.target sm_80", "\n.target sm_90"];
/// The first version of PTX with the instructions.
const FIRST_VERSION: (u32, u32) = (7, 8);
/// What a kernel waits by, also where it does so by itself.
const WAIT: &str = "griddepcontrol.wait;";
const ALLOW_NEXT: &str = "griddepcontrol.launch_dependents;";

/// What `cuda_std::dependent::begin` leaves in portable PTX.
const MARK: &str = "{ .reg .pred begins_behind_what_is_ahead; }";

/// Loads of what nobody writes while the kernel runs, which compilers may move in front of a wait. An early kernel runs while what is
/// ahead of it still writes, so that it gets plain loads, which stay behind the wait.
const OF_CONSTANTS: &str = "ld.global.nc.";
const PLAIN: &str = "ld.global.";

/// The PTX of one kernel for a device with early starts, which waits for what is ahead; where `lets_next` holds, the one behind it may
/// start when all blocks of this one have, and else when they end. Nothing where it cannot be given a wait: it is of an older
/// version, or not such as compilers print.
pub(super) fn that_waits(ptx: &str, lets_next: bool) -> Option<String> {
    let ptx = if ptx.contains(WAIT) { ptx.to_owned() } else { with_a_wait(ptx, lets_next)? };
    Some(ptx.replace(OF_CONSTANTS, PLAIN))
}

fn with_a_wait(ptx: &str, lets_next: bool) -> Option<String> {
    if version(ptx)? < FIRST_VERSION {
        return None;
    }
    // The one behind waits for this one's end by itself.
    let mut marks = ptx.match_indices(MARK);
    let (at, after, lets_next) = match (marks.next(), marks.next()) {
        (Some((at, _)), None) => (at, at + MARK.len(), true),
        // Of two, one could be passed by.
        _ => first_instruction(ptx).map(|at| (at, at, lets_next))?,
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
        let early = that_waits(PTX, true).unwrap();
        let begins =
            "\t.reg .b64 %rd<2>;\n\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n\tld.param";
        assert!(early.contains(begins), "{early}");
        assert!(early.starts_with(".version 8.0\n.target sm_90\n.address"), "{early}");
        assert_eq!(that_waits(PTX, false), Some(early.replace("\tgriddepcontrol.launch_dependents;\n", "")));
        let debug = that_waits(&PTX.replace("sm_80\n", "sm_80, debug\n"), true).unwrap();
        assert!(debug.contains("\n.target sm_90, debug\n"), "{debug}");
        let hopper = that_waits(&PTX.replace("sm_80", "sm_90a"), true).unwrap();
        assert!(hopper.starts_with(".version 8.0\n.target sm_90a\n") && hopper.contains(WAIT), "{hopper}");
    }

    #[test]
    fn a_kernel_that_says_where_it_begins_waits_there() {
        let marked = PTX.replace("\tret;", &format!("\t{MARK}\n\tret;"));
        let early = that_waits(&marked, false).unwrap();
        let lines: Vec<&str> = early.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert!(lines.ends_with(&["ld.param.b64 %rd1, [p];", WAIT, ALLOW_NEXT, "ret;", "}"]), "{early}");
        assert_eq!(early.matches(WAIT).count(), 1, "{early}");
        let twice = marked.replace(MARK, &format!("{MARK}\n\t{MARK}"));
        let early = that_waits(&twice, false).unwrap();
        assert!(early.find(WAIT) < early.find(MARK) && early.matches(WAIT).count() == 1, "{early}");
    }

    #[test]
    fn no_load_may_pass_the_wait() {
        let load = "\tld.global.nc.L2::cache_hint.v4.b32 { a, b, c, d }, [e], f;\n\tret;";
        for wait in ["", "\tgriddepcontrol.wait;\n"] {
            let early = that_waits(&PTX.replace("\tret;", &format!("{wait}{load}")), true).unwrap();
            assert!(
                early.contains("\tld.global.L2::cache_hint.v4.b32 {") && !early.contains(".nc."),
                "{early}"
            );
        }
    }

    #[test]
    fn what_cannot_be_given_a_wait_is_left() {
        let early = that_waits(PTX, true).unwrap();
        assert_eq!(that_waits(&early, false), Some(early), "it has one");
        assert_eq!(that_waits(&PTX.replace("8.0", "7.7"), true), None, "there are no such instructions");
        assert!(that_waits(&PTX.replace("8.0", "7.8"), true).is_some());
        assert_eq!(that_waits(&PTX.replace("\n{\n", " {"), true), None);
        assert_eq!(that_waits(&PTX.replace(".version", "// version"), true), None);
    }
}
