//! What the assembler makes of asynchronous copies.

use crate::sass::functions;

/// Whether PTX has asynchronous copies that tell L2 what to keep.
pub fn has_kept_copies(ptx: &str) -> bool {
    ptx.contains("cp.async.cg.shared.global.L2::cache_hint")
}

/// Looks for copies whose policy of L2 lies in a pair of uniform registers that begins with an odd one, as `ptxas` 13.0 and 13.5 have it where
/// the copy adds a uniform part to its place in shared memory (`LDGSTS [R9+UR4], desc[UR5]`): a GPU refuses it as an illegal instruction. `code`
/// has such copies, so it is a finding, too, if none is recognised.
pub fn judge_copies(code: &str) -> Vec<String> {
    let policy = |line: &str| -> Option<u32> {
        let (_, rest) = line.split_once("LDGSTS")?.1.split_once("desc[UR")?;
        rest.split_once(']')?.0.parse().ok()
    };
    let mut any = false;
    let mut findings = Vec::new();
    for (name, code) in functions(code) {
        let policies: Vec<u32> = code.lines().filter_map(policy).collect();
        any |= !policies.is_empty();
        if policies.iter().any(|register| register % 2 == 1) {
            findings.push(format!("{name}: a copy has its policy in an odd uniform register"));
        }
    }
    if !any {
        findings.push("no copy that tells L2 what to keep was recognised in the disassembly".to_owned());
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_copies_in_odd_registers_are_found() {
        let code = |line: &str| format!(".text.k:\n /*0010*/ {line}\n");
        let odd = code("LDGSTS.E.BYPASS.LTC256B.128.ZFILL [R17+UR4], desc[UR5][R4.64], P1 ;");
        assert_eq!(judge_copies(&odd), ["k: a copy has its policy in an odd uniform register"]);
        let even = code("LDGSTS.E.BYPASS.128 [R17], desc[UR4][R4.64] ;") + "LDG.E desc[UR5][R2.64] ;\n";
        assert!(judge_copies(&even).is_empty());
        let none = code("LDGSTS.E.BYPASS.128 [R17], [R4.64] ;");
        assert_eq!(
            judge_copies(&none),
            ["no copy that tells L2 what to keep was recognised in the disassembly"]
        );
    }
}
