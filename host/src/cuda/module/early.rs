//! Early starts: portable PTX is made to wait for the launch ahead of it, on GPUs where a launch may start before that one is
//! done.
//!
//! The instructions for it exist from compute capability 9.0 on, so PTX for 8.0 cannot have them, and no kernel has another
//! need to be built for 9.0. All of such a kernel's work depends on what came before it, so that it waits before its first
//! instruction. What it gains is the time between two launches: its blocks take their places as those of the kernel ahead
//! leave theirs. A kernel that knows better what it can do before it waits has `cuda_std::dependent` in its source, and is
//! left as it is.

use std::env;
use std::sync::OnceLock;

/// Whether kernels start early that do not say when they may: `WARPWRIGHT_EARLY_STARTS=1` in the environment, as it was when this
/// was asked for the first time.
pub fn early_starts() -> bool {
    static ASKED_FOR: OnceLock<bool> = OnceLock::new();
    *ASKED_FOR.get_or_init(|| env::var_os("WARPWRIGHT_EARLY_STARTS").is_some_and(|value| value == "1"))
}

/// The first compute capability with early starts.
const FIRST: (u32, u32) = (9, 0);
/// The portable target, and the first with the instructions.
const TARGETS: [&str; 2] = ["\n.target sm_80", "\n.target sm_90"];
/// What a kernel waits by, also where it does so by itself.
const WAIT: &str = "griddepcontrol.wait;";
const ALLOW_NEXT: &str = "griddepcontrol.launch_dependents;";

/// The PTX of one kernel for a device: one that may start early, where the device can start any so. Nothing if it is not such as
/// compilers print.
pub(super) fn waiting_for_what_is_ahead(ptx: String, device: (u32, u32)) -> Option<String> {
    if device < FIRST || ptx.contains(WAIT) {
        return Some(ptx);
    }
    let at = first_instruction(&ptx)?;
    let mut out = String::with_capacity(ptx.len() + 80);
    out.push_str(&ptx[..at]);
    // The one behind may start once all blocks of this one have; it waits for this one's end by itself.
    for instruction in [WAIT, ALLOW_NEXT] {
        out.push('\t');
        out.push_str(instruction);
        out.push('\n');
    }
    out.push_str(&ptx[at..]);
    // Code for exactly 9.0 has the instructions.
    Some(out.replacen(TARGETS[0], TARGETS[1], 1))
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
        let waiting = |ptx: &str, device| waiting_for_what_is_ahead(ptx.to_owned(), device).unwrap();
        let early = waiting(PTX, (9, 0));
        let begins =
            "\t.reg .b64 %rd<2>;\n\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n\tld.param";
        assert!(early.contains(begins), "{early}");
        assert!(early.starts_with(".version 8.0\n.target sm_90\n.address"), "{early}");
        assert_eq!(waiting(&early, (9, 0)), early);
        assert_eq!(waiting(PTX, (10, 0)), early);
        assert_eq!(waiting(PTX, (8, 9)), PTX, "there are no such instructions");
        assert_eq!(waiting_for_what_is_ahead(PTX.replace("\n{\n", " {"), (9, 0)), None);
        let debug = waiting(&PTX.replace("sm_80\n", "sm_80, debug\n"), (9, 0));
        assert!(debug.contains("\n.target sm_90, debug\n"), "{debug}");
        let hopper = PTX.replace("sm_80", "sm_90a");
        let early = waiting(&hopper, (9, 0));
        assert!(early.starts_with(".version 8.0\n.target sm_90a\n") && early.contains(WAIT), "{early}");
    }
}
